"""Names: parts are made from text with options, nothing else is read from it, and plugins add more parts."""

import os
import subprocess
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pidm_nav.agents import (
    AGENTS,
    BC,
    IDMS,
    PREDICTORS,
    Agent,
    AgentConfig,
    DeltaIDM,
    Follow,
    Learned,
    LinearIDM,
    Nearest,
    Neighbors,
    PIDMConfig,
    Predictor,
    StateIDM,
    TimeIndexed,
    load_agent,
    load_plugin,
    register,
    train,
)
from pidm_nav.agents.registry import describe, make_part, plugin_of, signatures
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.astar import AStarExpert

pytestmark = pytest.mark.usefixtures("own_parts")
TINY: dict[str, Any] = {"steps": 2, "batch_size": 8, "encoder_sizes": (8,), "head_sizes": ()}


@pytest.fixture(scope="module")
def dataset() -> DemoDataset:
    return collect(AStarExpert("four-room"), "four-room", episodes=2, max_steps=40)


# registering


def test_what_is_no_part_or_has_no_name_is_refused() -> None:
    class Nothing:
        name = "nothing"

    class Nameless(BC):
        pass

    class Spaced(Nearest):
        name: ClassVar[str] = "my predictor(k=3)"

    with pytest.raises(ValueError, match="Nothing is not an agent, predictor or inverse dynamics model: derive it"):
        register(Nothing)
    with pytest.raises(ValueError, match="Nameless has no name besides the inherited 'bc': add a line"):
        register(Nameless)
    with pytest.raises(ValueError, match="Spaced has no name"):
        register(Spaced)
    assert AGENTS["bc"] is BC and PREDICTORS["nearest"] is Nearest


def test_a_taken_name_is_refused_and_a_class_may_be_defined_again() -> None:
    class Other(Nearest):
        name: ClassVar[str] = "nearest"

    with pytest.raises(ValueError, match=r"already registers the predictor 'nearest': rename that of"):
        register(Other)
    assert PREDICTORS["nearest"] is Nearest

    def define() -> type[Agent]:
        @register
        class Mine(BC):
            name: ClassVar[str] = "mine"

        return Mine

    define()
    again = define()  # as a cell of a notebook that is run twice
    assert AGENTS["mine"] is again
    with pytest.raises(ValueError, match="rename that of"):

        @register
        class Theirs(BC):
            name: ClassVar[str] = "mine"


def test_options_whose_names_mean_something_else_are_refused() -> None:
    """The setting of training, or the attribute, would silently take their values."""

    @dataclass(frozen=True)
    class Own(AgentConfig):
        seed: int = 0

    class Seeded(BC):
        name: ClassVar[str] = "seeded"
        config_class: ClassVar[type[AgentConfig]] = Own

    @dataclass(eq=False)
    class Far(Nearest):
        name: ClassVar[str] = "far"
        horizon: int = 9  # type: ignore[assignment]

    for part, option in ((Seeded, "seed"), (Far, "horizon")):
        with pytest.raises(ValueError, match=f"{part.__name__} has the option '{option}', which is set elsewhere: ren"):
            register(part)


def test_a_subclass_without_a_name_is_neither_trained_nor_saved(dataset: DemoDataset, tmp_path: Path) -> None:
    """It would be loaded as its parent, which acts differently."""

    class Mine(BC):
        pass

    class Wandering(Nearest):
        pass

    with pytest.raises(ValueError, match="Mine has no name"):
        train(Mine, dataset, **TINY)
    with pytest.raises(ValueError, match="Wandering has no name"):
        train("pidm", dataset, predictor=Wandering(), **TINY)
    agent = train("bc", dataset, **TINY)
    with pytest.raises(ValueError, match="Mine is not registered as 'bc': give it a name"):
        Mine(agent.observation_space, agent.action_space).save(tmp_path / "agent")
    pidm = train("pidm", dataset, **TINY)
    pidm.predictor = Wandering().build(pidm.scale).fit(dataset)  # type: ignore[assignment]
    with pytest.raises(ValueError, match="Wandering"):
        pidm.save(tmp_path / "agent")
    assert not (tmp_path / "agent").exists()


# parts from text


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("nearest", Nearest()),
        (" nearest ", Nearest()),
        ("nearest()", Nearest()),
        ("nearest(distance='l1', pull=0.5)", Nearest(0.5, "l1")),
        ("neighbors(k=7)", Neighbors(k=7)),
        ("learned(sizes=(8, 4), steps=3)", Learned(steps=3, sizes=(8, 4))),
        ("learned(sizes=[8, 4])", Learned(sizes=(8, 4))),
        ("follow(pull=-1)", Follow(-1)),
    ],
)
def test_a_name_with_options_is_read(text: str, made: Predictor) -> None:
    part = make_part("predictor", text)
    assert type(part) is type(made)
    assert [getattr(part, field.name) for field in fields(made) if field.init] == [
        getattr(made, field.name) for field in fields(made) if field.init
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("neighbors(k=__import__('os').getpid())", "cannot be read: write a name, or name"),
        ("__import__('os').getpid()", "cannot be read"),
        ("neighbors(k=3)(k=4)", "cannot be read"),
        ("neighbors.name", "cannot be read"),
        ("neighbors(3)", "cannot be read"),
        ("neighbors(**{'k': 3})", "cannot be read"),
        ("neighbors(*[3])", "cannot be read"),
        ("neighbors(k=3", "cannot be read"),
        ("neighbors(k=1 if 1 else 2)", "cannot be read"),
        ("neighbors(k={[]: 3})", "cannot be read"),
        ("", "cannot be read"),
        ("neighbors; nearest", "cannot be read"),
        ("neighbors(k=" + "(" * 5000 + ")" * 5000 + ")", "cannot be read"),
        ("neighbors(k='three')", "k of the predictor neighbors is 'three': Expected `int`, got `str`"),
        ("neighbors(k=0)", "k of the predictor neighbors is 0: Expected `int` >= 1"),
        ("neighbors(k=1.5)", "k of the predictor neighbors is 1.5"),
        ("nearest(distance='l3')", "distance of the predictor nearest is 'l3'"),
        ("neighbors(kk=3)", "the predictor neighbors has no option 'kk': did you mean 'k'"),
        ("time(speed=3)", "the predictor time has no option 'speed': it has pull"),
        ("neighbours", "there is no predictor 'neighbours': did you mean 'neighbors'"),
        ("bc", "there is no predictor 'bc': choose one of nearest"),
    ],
)
def test_code_unknown_options_and_wrong_types_are_refused_in_a_sentence(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        make_part("predictor", text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


@given(text=st.text(st.sampled_from("nearst()k={}[]'\"1,.*:-_ \x00\n"), max_size=30))
@example("nearest(k={{1}})")
@example("nearest(k={[1]})")
@example("nearest(k=-'a')")
def test_any_text_makes_a_part_or_a_valueerror(text: str) -> None:
    try:
        assert isinstance(make_part("predictor", text), Predictor)
    except ValueError as error:
        assert str(error)


POSITIVE, FRACTION, PULL = st.integers(1, 10**9), st.floats(0, 1), st.floats(-100, 100)
DISTANCE = st.sampled_from(["l1", "l2"])
SIZES = st.lists(st.integers(1, 8192), max_size=4).map(tuple)
PARTS: Any = st.one_of(
    st.builds(Nearest, PULL, DISTANCE),
    st.builds(Neighbors, PULL, DISTANCE, POSITIVE),
    st.builds(Follow, PULL, DISTANCE, POSITIVE),
    st.builds(TimeIndexed, PULL),
    st.builds(Learned, POSITIVE, SIZES, POSITIVE, st.floats(1e-9, 1), st.floats(0, 100)),
    st.builds(StateIDM),
    st.builds(DeltaIDM, FRACTION, FRACTION, FRACTION),
    st.builds(LinearIDM, st.floats(0, 1e6)),
)


@given(part=PARTS)
def test_what_a_part_is_described_as_makes_it_again(part: Any) -> None:
    again = make_part(part.kind, describe(part))
    assert type(again) is type(part) and describe(again) == describe(part)
    for field in fields(part):
        if field.init:
            assert getattr(again, field.name) == getattr(part, field.name)


def test_options_equal_to_the_defaults_are_not_named() -> None:
    assert describe(Neighbors) == describe(Neighbors()) == describe("neighbors") == "neighbors"
    assert describe(Neighbors(k=5)) == "neighbors(k=5)"
    assert describe(DeltaIDM(state_noise=0.2)) == "delta(state_noise=0.2)"
    with pytest.raises(ValueError, match="is not a predictor or inverse dynamics model"):
        describe(3)


def test_options_may_be_numbers_of_numpy() -> None:
    part = Neighbors(pull=np.float32(0.5), k=np.int64(4))  # type: ignore[arg-type]
    again = make_part("predictor", describe(part))
    assert (again.k, again.pull) == (4, 0.5)


def test_settings_take_names_classes_and_objects(dataset: DemoDataset, tmp_path: Path) -> None:
    for part, text in ((Neighbors, "neighbors"), (Neighbors(k=2), "neighbors(k=2)"), ("follow", "follow")):
        assert PIDMConfig(predictor=part).predictor == text
    agent = train("pidm", dataset, predictor=Neighbors(k=2, pull=0.5), idm=DeltaIDM(delta_noise=0.0), **TINY)
    loaded = load_agent(agent.save(tmp_path))
    assert (loaded.config.predictor, loaded.config.idm) == ("neighbors(pull=0.5, k=2)", "delta(delta_noise=0.0)")
    observations = dataset[0].observations[::5] + np.float32(3)
    np.testing.assert_array_equal(loaded.predict(observations)[0], agent.predict(observations)[0])


def test_help_texts_name_all_parts_and_options() -> None:
    for kind, known in (("predictor", PREDICTORS), ("inverse dynamics model", IDMS)):
        text = signatures(kind)
        assert all(name in text for name in known)
    assert "neighbors(pull=1.0, distance=l2, k=3)" in signatures("predictor")


def test_a_part_of_ones_own_has_its_own_options(dataset: DemoDataset, tmp_path: Path) -> None:
    @register
    @dataclass(eq=False)
    class Beyond(Nearest):
        """The nearest state's future, moved."""

        name: ClassVar[str] = "beyond"
        by: float = 0.0

        def following(self, rows: Any, states: Any) -> Any:
            return super().following(rows, states) + np.float32(self.by)

    agent = train("pidm", dataset, predictor="beyond(by=2.5)", **TINY)
    states = dataset[0].observations[:3]
    expected = Nearest().build(agent.scale).fit(dataset).predict(states)[0] + np.float32(2.5)
    for each in (agent, load_agent(agent.save(tmp_path))):
        np.testing.assert_allclose(each.predictor.predict(states)[0], expected)  # type: ignore[operator]
    with pytest.raises(ValueError, match="no option 'bye': did you mean 'by'"):
        train("pidm", dataset, predictor="beyond(bye=2.5)", **TINY)


# plugins


PLUGIN = '''
"""Somebody's own agent and predictor."""
import os
from dataclasses import dataclass
from pathlib import Path
from pidm_nav import BC, Nearest, register

Path(__file__).with_suffix(".imported").write_text(str(os.getpid()))


@register
class Mine(BC):
    name = "mine"


@register
@dataclass(eq=False)
class Still(Nearest):
    """Stay where you are."""

    name = "still"

    def predict(self, states, memory=None, episode_start=None):
        return states.copy(), memory
'''


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    path = tmp_path / "plugins" / "my_parts.py"
    path.parent.mkdir()
    path.write_text(PLUGIN)
    return path


def run(program: str, *words: object, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in a fresh process."""
    command = [sys.executable, "-c", program, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **variables}, check=False)


LOAD = """
import sys
import numpy as np
from pidm_nav.agents import AGENTS, PREDICTORS, load_agent
print("mine" in AGENTS, "still" in PREDICTORS)
for folder in sys.argv[1:]:
    try:
        print(load_agent(folder).name)
    except ValueError as error:
        print(error)
"""


@pytest.mark.thorough
def test_a_plugin_from_a_file_and_agents_that_need_it(plugin: Path, dataset: DemoDataset, tmp_path: Path) -> None:
    module = load_plugin(plugin)
    assert load_plugin(str(plugin)) is module and AGENTS["mine"] is module.Mine
    assert plugin_of(module.Mine) == "my_parts.py" and plugin_of(BC) == ""
    folders = [tmp_path / "agent", tmp_path / "predictor"]
    train("mine", dataset, out=folders[0], **TINY)
    train("pidm", dataset, out=folders[1], predictor="still", **TINY)
    imported = plugin.with_suffix(".imported")
    assert int(imported.read_text()) == os.getpid()

    without = run(LOAD, *folders, PIDM_NAV_PLUGINS="")
    known, *errors = without.stdout.splitlines()
    assert known == "False False" and len(errors) == 2, without.stderr
    for error, name in zip(errors, ("there is no agent 'mine'", "there is no predictor 'still'"), strict=True):
        assert name in error and "my_parts.py" in error and "load" in error and "train again" not in error
    assert int(imported.read_text()) == os.getpid(), "a file made load_agent import something"

    loaded = run(LOAD, *folders, PIDM_NAV_PLUGINS=str(plugin))
    assert loaded.stdout.splitlines() == ["True True", "mine", "pidm"], loaded.stderr
    assert int(imported.read_text()) != os.getpid()


def test_plugins_that_are_not_there_or_fail(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no plugin '.*absent.py': give the path"):
        load_plugin(tmp_path / "absent.py")
    with pytest.raises(
        ValueError, match=r"there is no module 'nobodys_module': give an installed module, or a \.py file"
    ):
        load_plugin("nobodys_module")
    broken = tmp_path / "broken.py"
    broken.write_text("raise RuntimeError('no')")
    for _ in range(2):  # the second time, too
        with pytest.raises(RuntimeError, match="no"):
            load_plugin(broken)


def test_files_of_one_name_in_two_folders_are_two_plugins(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(f"WHERE = '{folder}'")
    assert [load_plugin(tmp_path / folder / "own.py").WHERE for folder in ("one", "two")] == ["one", "two"]
