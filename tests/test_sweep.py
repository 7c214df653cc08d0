"""A sweep can be stopped, killed and joined, gives the same numbers again, and refuses what it cannot do."""

import importlib
import importlib.util
import json
import os
import pickle
import shutil
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
import pytest
import tyro

from pidm_nav.agents import AGENTS, load_agent
from pidm_nav.cli import _option_rules, main
from pidm_nav.commands import experiments
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.experts.random_play import RandomPlay
from pidm_nav.demos.formats.npz import save_demos
from pidm_nav.experiments import engines
from pidm_nav.experiments import sweep as library
from pidm_nav.experiments.engines import Outcome, Outcomes, attempt, run_local, run_ray
from pidm_nav.experiments.jobs import TRAINED_WITH, Job, code_hash, run_job, sample_demos
from pidm_nav.experiments.recipes import RECIPES, Recipe
from pidm_nav.experiments.report import write_report
from pidm_nav.experiments.results import Cell, make_curves, open_folder, paired_gains, read_manifest, read_results
from pidm_nav.experiments.sources import find_demos
from pidm_nav.experiments.sweep import Sweep, run_sweep
from pidm_nav.rollouts.evaluation import EvalResult
from pidm_nav.tasks import PAPER_TASKS

if TYPE_CHECKING:
    from sandbox import Ended, Sandbox


@pytest.fixture(scope="module")
def dataset() -> DemoDataset:
    return collect(AStarExpert("zigzag"), "zigzag", episodes=4, seed=0, made_by="astar")


@pytest.fixture(scope="module")
def file(dataset: DemoDataset, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("demos") / "zigzag_astar.npz"
    save_demos(dataset, path)
    return path


@pytest.fixture()
def tiny(file: Path) -> Sweep:
    size = {"agents": ("bc", "retrieval-bc"), "num_demos": (1, 2), "seeds": 2, "steps": 4, "episodes": 2}
    return Sweep(demos=(str(file),), checkpoint_fractions=(0.5,), env_kwargs={"max_steps": 40}, **size)


def here(function: Callable[[Job], Outcome], jobs: Sequence[Job]) -> Outcomes[Job]:
    """An engine without processes."""
    return ((job, attempt(function, job)) for job in jobs)


def breaking(task_agent: str) -> Any:
    """An engine in which one agent's jobs fail."""

    def run(function: Callable[[Job], Outcome], jobs: Sequence[Job]) -> Outcomes[Job]:
        def broken(job: Job) -> Outcome:
            if job.cell.agent == task_agent:
                raise RuntimeError("out of luck")
            return function(job)

        return here(broken, jobs)

    return run


def scores(folder: Path) -> dict[str, Any]:
    """Every result but for the time it took."""
    found = {}
    for path in sorted((folder / "jobs").glob("*.json")):
        content = json.loads(path.read_text())
        assert content.pop("seconds", 0) >= 0
        found[path.name] = content
    return found


def test_cells_are_seed_major(tiny: Sweep) -> None:
    cells = tiny.cells()
    assert len(cells) == len(set(cells)) == 8
    assert [cell.seed for cell in cells] == [0] * 4 + [1] * 4


def test_the_sample_depends_on_seed_task_and_number_only(dataset: DemoDataset) -> None:
    def picked(seed: int, agent: str) -> list[int]:
        sample = sample_demos(dataset, Cell(seed, "zigzag", 2, agent))
        return [dataset.episodes.index(episode) for episode in sample]

    assert picked(0, "bc") == picked(0, "pidm") == picked(0, "retrieval-bc")
    assert len({tuple(picked(seed, "bc")) for seed in range(20)}) > 5


def test_results_are_scores_with_their_origin(tiny: Sweep, tmp_path: Path) -> None:
    done = run_sweep(tiny, tmp_path, here)
    found = scores(tmp_path)
    assert set(found) == {f"{cell.name}.json" for cell in tiny.cells()} and len(done) == 8
    result = found["zigzag_bc_2_1.json"]
    assert [checkpoint["step"] for checkpoint in result["checkpoints"]] == [2, 4]
    for checkpoint in result["checkpoints"]:
        assert len(checkpoint["goals"]) == 2
        assert checkpoint["goal_ratio"] == pytest.approx(np.mean(checkpoint["goals"]) / 6)
    assert len(found["zigzag_retrieval-bc_2_1.json"]["checkpoints"]) == 1  # nothing is trained
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert manifest["version"] == result["version"] and manifest["demos"]["zigzag"]["episodes"] == 4
    curves = make_curves(read_results(tmp_path)[0], "astar")
    assert [(c.agent, c.sizes, c.scores.shape) for c in curves] == [
        ("bc", (1, 2), (2, 2, 2)),
        ("retrieval-bc", (1, 2), (2, 2, 1)),
    ]


def test_what_is_done_is_not_done_again(tiny: Sweep, tmp_path: Path) -> None:
    run_sweep(replace(tiny, seeds=1), tmp_path, here)
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "jobs").iterdir()}
    ran: list[Cell] = []
    run_sweep(replace(tiny, device="auto"), tmp_path, here, on_result=lambda result: ran.append(result.cell))
    assert {cell.seed for cell in ran} == {1} and len(ran) == 4
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert len(run_sweep(replace(tiny, agents=(*tiny.agents, "pidm")), tmp_path, here)) == 12  # joins later


def test_seeds_begin_where_they_are_told_to(tiny: Sweep, tmp_path: Path) -> None:
    fresh = replace(tiny, seeds=2, first_seed=7)
    assert {cell.seed for cell in run_sweep(fresh, tmp_path, here)} == {7, 8}
    with pytest.raises(ValueError, match="-1"):
        replace(tiny, first_seed=-1)


def test_shards_share_the_work(tiny: Sweep, tmp_path: Path) -> None:
    parts = [run_sweep(tiny, tmp_path, here, shard=(index, 3)) for index in range(3)]
    assert sum(map(len, parts)) == 8 and len(scores(tmp_path)) == 8


@pytest.mark.parametrize(
    "change",
    [
        {"steps": 5},
        {"episodes": 3},
        {"label": "human"},
        {"checkpoint_fractions": ()},
        {"preset": "paper"},
        {"env_kwargs": {"noise_std": 0.1}},
        {"recipes": {"bc": Recipe("bc", {"head_sizes": (8,)})}},
    ],
)
def test_different_configurations_do_not_mix(tiny: Sweep, tmp_path: Path, change: dict[str, Any]) -> None:
    run_sweep(replace(tiny, seeds=1, num_demos=(1,), agents=("bc",)), tmp_path, here)
    before = scores(tmp_path)
    with pytest.raises(ValueError, match="choose another folder"):
        run_sweep(replace(tiny, **change), tmp_path, here)
    assert scores(tmp_path) == before


def test_other_data_versions_and_strays_do_not_mix(tiny: Sweep, tmp_path: Path, dataset: DemoDataset) -> None:
    tiny = replace(tiny, seeds=1, num_demos=(1,), agents=("retrieval-bc",))
    run_sweep(tiny, tmp_path, here)
    with pytest.raises(ValueError, match=r"demos\.zigzag"):
        save_demos(dataset[:3], tmp_path / "fewer.npz")
        run_sweep(replace(tiny, demos=(str(tmp_path / "fewer.npz"),)), tmp_path, here)
    path = tmp_path / "manifest.json"
    text = path.read_text()
    path.write_text(text.replace('"version": "', '"version": "9.'))
    with pytest.raises(ValueError, match=r"holds results with version 9\..*, not"):
        run_sweep(tiny, tmp_path, here)
    older = json.loads(text)  # by a version that did not know this setting
    del older["agents"]["retrieval-bc"]["frames"]
    path.write_text(json.dumps(older))
    with pytest.raises(ValueError, match=r"with agents\.retrieval-bc\.frames unknown, not cnn"):
        run_sweep(tiny, tmp_path, here)
    assert json.loads(path.read_text()) == older
    path.unlink()
    with pytest.raises(ValueError, match=r"without their configuration manifest\.json"):
        run_sweep(tiny, tmp_path, here)
    path.write_text(text)
    result = tmp_path / "jobs" / "zigzag_retrieval-bc_1_0.json"
    result.write_text(result.read_text().replace('"identity": "', '"identity": "0'))
    with pytest.raises(ValueError, match="another configuration"):
        run_sweep(tiny, tmp_path, here)
    result.write_text("{")
    with pytest.raises(ValueError, match="damaged"):
        run_sweep(tiny, tmp_path, here)


def test_a_failing_job_is_recorded_and_retried_on_request(tiny: Sweep, tmp_path: Path) -> None:
    assert len(run_sweep(tiny, tmp_path, breaking("bc"))) == 4
    failed = read_results(tmp_path)[1]
    assert len(failed) == 4 and {cell.agent for cell in failed} == {"bc"}
    for content in failed.values():
        assert content.error == "RuntimeError: out of luck" and "Traceback" in str(content.traceback)
    assert len(run_sweep(tiny, tmp_path, here)) == 4  # left alone
    assert len(run_sweep(tiny, tmp_path, here, retry_failed=True)) == 8
    assert read_results(tmp_path)[1] == {} and not list((tmp_path / "jobs").glob("*.error.json"))


def command(out: Path, file: Path, *extra: str) -> list[str]:
    words = ["sweep", "--out", str(out), "--tasks", "zigzag", "--demos", str(file), "--agents"]
    words += ["bc,retrieval-bc", "--num-demos", "1,3", "--seeds", "3", "--steps", "4", "--episodes", "2"]
    words += ["--checkpoint-fractions", ""]
    return [*words, *extra]


def same(file: Path) -> Sweep:
    """What the command runs."""
    size = {"agents": ("bc", "retrieval-bc"), "num_demos": (1, 3), "seeds": 3, "steps": 4, "episodes": 2}
    return Sweep(demos=(str(file),), checkpoint_fractions=(), **size)


def stop(box: "Sandbox", out: Path, file: Path, number: int) -> "Ended":
    """Send a signal to a sweep of which two jobs are done, and wait until its process and its worker have ended."""
    signaled = ["originals:run_and_signal", str(int(number)), "jobs/*.json", "2"]
    return box.run([*signaled, *command(out, file, "--jobs", "1")], out)


@pytest.mark.thorough
def test_a_killed_sweep_goes_on_to_the_same_results(
    file: Path, box: "Sandbox", tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stop(box, tmp_path / "killed", file, signal.SIGKILL).code == -signal.SIGKILL
    done = scores(tmp_path / "killed")
    assert 2 <= len(done) < 12
    monkeypatch.setattr(experiments, "run_local", lambda function, jobs, workers: here(function, jobs))
    main(command(tmp_path / "killed", file))
    run_sweep(same(file), tmp_path / "whole", here)
    assert len(scores(tmp_path / "whole")) == 12
    assert scores(tmp_path / "killed") == scores(tmp_path / "whole")
    assert scores(tmp_path / "killed").items() >= done.items()


@pytest.mark.thorough
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_leaves_a_message_and_a_folder_to_go_on_with(
    number: int, file: Path, box: "Sandbox", tmp_path: Path
) -> None:
    ended = stop(box, tmp_path / "out", file, number)
    output = ended.out + ended.err
    assert ended.code == 128 + number and ended.out.startswith("1/12 "), output
    assert "of 12 jobs are saved" in output and "Traceback" not in output
    assert 2 <= len(read_results(tmp_path / "out")[0]) < 12


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_both_engines_give_the_same_bits(tiny: Sweep, tmp_path: Path) -> None:
    sweep = replace(tiny, agents=("bc", "pidm", "retrieval-bc"), seeds=1, steps=20)
    run_sweep(sweep, tmp_path / "local", partial(run_local, workers=2))
    run_sweep(sweep, tmp_path / "ray", partial(run_ray, workers=2, address="local"))
    assert len(scores(tmp_path / "local")) == 6
    assert scores(tmp_path / "local") == scores(tmp_path / "ray")


def test_jobs_do_not_depend_on_what_ran_before(tiny: Sweep) -> None:
    job = replace(tiny, agents=("pidm",)).job(Cell(1, "zigzag", 2, "pidm"))
    first = run_job(job)
    run_job(replace(job, settings=job.settings.changed(seed=5)))
    assert run_job(job)["checkpoints"] == first["checkpoints"]


def test_kept_agents_are_evaluated_without_training_again(tiny: Sweep, tmp_path: Path) -> None:
    def stand_still(agent: Any) -> None:
        agent.predict = lambda observation, state, *_, **__: (np.zeros((len(observation), 2)), state)

    def longest(result: EvalResult) -> dict[str, float]:
        return {"longest": float(result.length.max())}

    variants = {"asleep": Recipe("bc", adapt=stand_still, trained_as="bc")}
    kept = replace(tiny, agents=("bc",), seeds=1, checkpoint_fractions=(), keep_agents=tmp_path / "agents")
    asleep = replace(kept, agents=("asleep",), recipes=variants, extra_metrics=longest)
    run_sweep(asleep, tmp_path / "early", here)
    assert all("first sweep bc" in str(r.error) for r in read_results(tmp_path / "early")[1].values())
    first = run_sweep(kept, tmp_path / "first", here)
    assert load_agent(tmp_path / "agents" / "zigzag_bc_2_0").name == "bc"
    for weights in (tmp_path / "agents").rglob("*.safetensors"):
        weights.touch()
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "agents").rglob("*")}
    again = run_sweep(kept, tmp_path / "again", here)
    assert {cell: r.checkpoints for cell, r in again.items()} == {cell: r.checkpoints for cell, r in first.items()}
    slept = run_sweep(asleep, tmp_path / "asleep", here)
    assert [r.checkpoints[0].goal_ratio for r in slept.values()] == [0, 0]
    assert all(r.checkpoints[0].extra == {"longest": 40} for r in slept.values())
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "agents").rglob("*")} == before
    run_sweep(replace(kept, steps=5), tmp_path / "longer", here)  # other settings: trained anew
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "agents").rglob("*")} != before


def test_kept_agents_of_other_code_are_trained_again(
    tiny: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = replace(
        tiny, agents=("bc",), num_demos=(1,), seeds=1, checkpoint_fractions=(), keep_agents=tmp_path / "kept"
    )
    run_sweep(kept, tmp_path / "first", here)
    (note,) = (tmp_path / "kept").rglob(TRAINED_WITH)
    before = note.read_text()
    monkeypatch.setattr("pidm_nav.experiments.sweep.code_hash", lambda sources=(): "other code")
    done = run_sweep(kept, tmp_path / "second", here)
    assert note.read_text() != before and {result.code for result in done.values()} == {"other code"}


OWN_POLICY = """
import numpy as np

class Still:
    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        return np.zeros((len(observation), 2)), state

def still(demos, seed):
    return Still()
"""


def test_the_code_of_an_agent_of_ones_own_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_agent.py").write_text("from pidm_nav.agents import BC\nclass Own(BC):\n    name = 'own'\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(AGENTS, "own", importlib.import_module("own_agent").Own)
    assert Recipe("own").sources() == (str(tmp_path / "own_agent.py"),)
    assert code_hash(Recipe("own").sources()) != code_hash()


def test_results_of_other_code_are_kept_with_a_warning(
    tiny: Sweep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    """Package agents share one code; an edited agent of one's own is not mixed with its earlier self in silence."""
    (tmp_path / "own_policy.py").write_text(OWN_POLICY)
    monkeypatch.syspath_prepend(tmp_path)
    make = importlib.import_module("own_policy").still
    size: dict[str, Any] = {"num_demos": (1,), "checkpoint_fractions": ()}
    sweep = replace(tiny, agents=("bc", "retrieval-bc"), **size)
    done = run_sweep(sweep, tmp_path / "results", here)
    assert len({result.code for result in done.values()}) == 1
    mine = replace(tiny, agents={"still": make}, **size)
    done = run_sweep(replace(mine, seeds=1), tmp_path / "results", here)
    run_sweep(mine, tmp_path / "results", here)
    assert not recwarn.list
    (tmp_path / "own_policy.py").write_text(OWN_POLICY + "# faster\n")
    code_hash.cache_clear()
    with pytest.warns(UserWarning, match=r"2 results in .* were made by other code and kept: delete them in .*jobs"):
        run_sweep(mine, tmp_path / "results", here)


def test_evaluations_have_the_noise_of_the_demonstrations_unless_told_otherwise(tmp_path: Path) -> None:
    save_demos(collect(AStarExpert("zigzag"), "zigzag", 1, noise_std=0.0, clip_noise=False), tmp_path / "demos.npz")
    common: dict[str, Any] = {"demos": (str(tmp_path / "demos.npz"),), "agents": ("retrieval-bc",), "num_demos": (1,)}
    quiet = Sweep(episodes=3, **common)
    goals = run_job(quiet.job(quiet.cells()[0]))["checkpoints"][-1]["goals"]
    assert goals == [6, 6, 6]  # without noise, what was recorded is enough
    for changes, wanted in (
        ({}, {"noise_std": 0.0, "clip_noise": False}),
        ({"clip_noise": True}, {"noise_std": 0.0, "clip_noise": True}),
        ({"env_kwargs": {"noise_std": 0.3}}, {"noise_std": 0.3, "clip_noise": False}),
    ):
        assert Sweep(**common, **changes).manifest().demos["zigzag"].env_kwargs == wanted


@pytest.mark.parametrize("name", RECIPES)
def test_the_package_has_variants_that_learn_from_other_data(tiny: Sweep, tmp_path: Path, name: str) -> None:
    variant = replace(RECIPES[name], play_steps=min(100, RECIPES[name].play_steps))
    small = replace(tiny, agents=(name,), num_demos=(2,), seeds=1, checkpoint_fractions=())
    run_sweep(replace(small, recipes={name: variant}, keep_agents=tmp_path / "agents"), tmp_path / "sweep", here)
    learned = load_agent(tmp_path / "agents" / f"zigzag_{name}_2_0").description
    assert ("idm_data" in learned) == (name in ("delta-pidm-play", "delta-pidm-states"))
    assert learned["data"]["episodes"] == {"bc-dagger": 2 + 5 * 2, "bc-play": 2 + 2}.get(name, 2)
    assert read_manifest(tmp_path / "sweep").training[f"zigzag/{name}"].items() >= variant.describe().items()


def test_options_name_the_cell(tiny: Sweep) -> None:
    sweep = replace(tiny, agents=("mine",), recipes={"mine": Recipe("bc", {"frames": "agent:runs/{task}_{seed}"})})
    job = sweep.job(Cell(1, "zigzag", 2, "mine"))
    assert job.settings.options.frames == "agent:runs/zigzag_1"
    assert "agent:runs/{task}_{seed}" in json.dumps(sweep.manifest().training["zigzag/mine"])


def test_anybodys_environment_is_scored_by_its_return(tmp_path: Path) -> None:
    def push(observation: Any, *_: Any, **__: Any) -> tuple[Any, None]:
        return np.full((len(observation), 1), 0.5, np.float32), None

    player = type("Player", (), {"predict": staticmethod(push)})()
    save_demos(collect(player, "Pendulum-v1", 3, max_steps=20), tmp_path / "pendulum.npz")
    sweep = Sweep(agents=("bc", "pidm"), demos=(str(tmp_path / "pendulum.npz"),), num_demos=(1, 2), seeds=2, steps=2)
    done = run_sweep(replace(sweep, episodes=2), tmp_path / "out", here)
    assert len(done) == 8 and all(-2000 < result.score < 0 for result in done.values())
    text = write_report([tmp_path / "out"], tmp_path / "report").read_text(encoding="utf-8")
    assert "Pendulum-v1" in text and "η" not in text  # a share of a negative return means nothing
    assert "PIDM minus BC" in text and list((tmp_path / "report" / "tables").glob("paired-pidm-bc-*.csv"))


def test_a_worker_knows_the_ids_that_the_program_has_registered(tmp_path: Path) -> None:
    gym.register("Swing-v0", "gymnasium.envs.classic_control:PendulumEnv", max_episode_steps=5)
    try:
        save_demos(collect(RandomPlay("Swing-v0"), "Swing-v0", 1), tmp_path / "swing.npz")
        sweep = Sweep(agents=("retrieval-bc",), demos=(str(tmp_path / "swing.npz"),), num_demos=(1,), seeds=1)
        job = pickle.loads(pickle.dumps(replace(sweep, episodes=1).job(Cell(0, "Swing-v0", 1, "retrieval-bc"))))
        del gym.registry["Swing-v0"]  # as in a new process
        assert run_job(job)["checkpoints"][0]["length"] == 5
    finally:
        gym.registry.pop("Swing-v0", None)


@pytest.mark.parametrize("label", ["../../etc", "a/b", "", "a b", ".hidden"])
def test_a_label_is_a_plain_name(label: str, tiny: Sweep, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="use letters, digits"):
        replace(tiny, label=label)
    run_sweep(replace(tiny, seeds=1, num_demos=(1,), agents=("retrieval-bc",)), tmp_path / "out", here)
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    (tmp_path / "out" / "manifest.json").write_text(json.dumps(manifest | {"demos_from": label}))
    with pytest.raises(ValueError, match="not a manifest that this version"):
        write_report([tmp_path / "out"], tmp_path / "report")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--tasks", "labyrinth"], "there is no task 'labyrinth'"),
        (["--agents", "bc,gpt"], "there is no agent 'gpt'"),
        (["--num-demos", "1,80"], "--num-demos is 80, and there are 4 demonstrations of zigzag"),
        (["--num-demos", "few"], "--num-demos: 'few' is not a list: give values such as 1,2,5"),
        (["--num-demos", "0,1"], "--num-demos is 0: choose from 1 to"),
        (["--tasks", "zigzag,maze"], "there are no demonstrations of maze"),
        (["--tasks", "tour-3d"], "there are no demonstrations of tour-3d"),
        (["--demos-from", "astar"], "both given"),
        (["--jobs", "0"], "--jobs is 0"),
        (["--shard", "3/3"], "--shard is '3/3'"),
        (["--checkpoint-fractions", "2"], "fractions"),
        (["--label", "../x"], "use letters"),
        (["--tasks", "mazze"], "did you mean 'maze'?"),
        (["--device", "gpu"], "torch finds no device 'gpu' here: choose auto or"),
    ],
)
def test_bad_input_is_one_sentence_before_any_work(
    words: list[str], sentence: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = command(tmp_path / "out", file)
    for option, value in zip(words[::2], words[1::2], strict=True):
        if option in given:
            given[given.index(option) + 1] = value
        else:
            given += [option, value]
    with pytest.raises(SystemExit) as stopped:
        main(given)
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and error.startswith("error: ") and error.count("\n") == 1
    assert sentence in error
    assert not (tmp_path / "out").exists()


def test_an_unwritable_folder_is_one_sentence(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(SystemExit) as stopped:
        main(command(tmp_path / "taken" / "results", file))
    assert stopped.value.code == 2
    assert "choose another folder" in capsys.readouterr().err


def test_missing_ray_is_one_sentence(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engines.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SystemExit) as stopped:
        main(command(tmp_path / "out", file, "--engine", "ray"))
    assert stopped.value.code == 2 and "pip install" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_lists_are_separated_by_commas_or_spaces(file: Path) -> None:
    for words in (["1,3"], ["1", "3"], ["1,", "3"]):
        with _option_rules():
            parsed = tyro.cli(experiments.SweepCommand, args=["--demos", str(file), "--num-demos", *words])
        assert parsed.num_demos == (1, 3) and parsed.demos == (str(file),)


@pytest.mark.parametrize("kind", ["astar", "human-like"])
def test_demonstrations_of_the_package(kind: str) -> None:
    datasets, label = find_demos(tuple(PAPER_TASKS), demos_from=kind)
    assert label == kind and {task: data.task for task, data in datasets.items()} == {t: t for t in PAPER_TASKS}


def test_demonstrations_by_file_and_folder(file: Path, tmp_path: Path, dataset: DemoDataset) -> None:
    assert find_demos(["zigzag"], [str(file)])[1] == "astar"
    datasets, label = find_demos(["zigzag"], demos_from=str(file.parent))
    assert label == "astar" and len(datasets["zigzag"]) == 4
    save_demos(dataset, tmp_path / "a.npz")
    save_demos(dataset, tmp_path / "b.npz")
    with pytest.raises(ValueError, match="both of zigzag"):
        find_demos(["zigzag"], demos_from=str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no folder"):
        find_demos(["zigzag"], demos_from=str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".a.host-1.tmp.npz").write_bytes(b"of a process that was killed")
    with pytest.raises(FileNotFoundError, match="holds no demonstrations"):
        find_demos(["zigzag"], demos_from=str(tmp_path / "empty"))


def test_the_papers_recordings(shared: Path) -> None:
    released = shared / "data" / "reference_format"
    datasets, label = find_demos(tuple(PAPER_TASKS), demos_from=str(released))
    assert label == "human" and len(datasets["maze"]) == 2
    compact = sorted(str(path) for path in (shared / "data" / "reference_demos").glob("*_human.npz"))
    datasets, label = find_demos(tuple(PAPER_TASKS), compact)
    assert label == "human" and all(len(data) == 50 for data in datasets.values())


@pytest.fixture(scope="module")
def whole(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished sweep: two sizes of BC."""
    size = {"agents": ("bc",), "num_demos": (1, 2), "seeds": 1, "steps": 2, "episodes": 2}
    folder = tmp_path_factory.mktemp("whole") / "results"
    run_sweep(Sweep(demos=(str(file),), checkpoint_fractions=(), **size), folder, here)
    return folder


DEEP = json.loads("[" * 600 + "]" * 600)
WRONG: list[tuple[str, str, Any]] = [  # a file, a place in it, what it is replaced by
    *(("manifest.json", place, value) for place in ("training", "demos", "agents") for value in (1, [], {"x": 0})),
    *(("manifest.json", "demos_from", value) for value in (1.5, "x/../../../evil", "x\n", "-", "a" * 300, None)),
    *(("manifest.json", "evaluation", value) for value in ({"episodes": 0, "seed": 0}, {"episodes": "a", "seed": 0})),
    ("manifest.json", "training", {"zigzag/bc": {"steps": None}}),
    ("manifest.json", "agents", {"../bc": {}}),
    ("manifest.json", "agents", {"bc": {"frames": DEEP}}),
    ("manifest.json", "preset", "[/red]"),
    *(("jobs/zigzag_bc_1_0.json", "seed", value) for value in (-1, {}, 0.5, "0", 10**30)),
    *(("jobs/zigzag_bc_1_0.json", "demos", value) for value in (0, -1, 1.0, 3)),
    *(("jobs/zigzag_bc_1_0.json", "task", value) for value in (5, "../zigzag", "maze", "$x^$", "")),
    *(("jobs/zigzag_bc_1_0.json", "agent", value) for value in ("../bc", "pidm", [])),
    *(("jobs/zigzag_bc_1_0.json", "checkpoints", value) for value in (0, [], [[]], [{}], [{"goal_ratio": 2.0}])),
    ("jobs/zigzag_bc_1_0.json", "checkpoints", [{"goal_ratio": float("nan")}]),
    ("jobs/zigzag_bc_1_0.json", "checkpoints", [{"goal_ratio": 0.5, "mean_return": 1e308}]),
    ("jobs/zigzag_bc_1_0.json", "seconds", [[]]),
    ("jobs/zigzag_bc_1_0.json", "error", ""),
]


@pytest.mark.parametrize(("name", "place", "value"), WRONG)
def test_a_wrong_value_in_a_file_is_one_sentence(
    name: str, place: str, value: Any, whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole, tmp_path / "results")
    path = tmp_path / "results" / name
    path.write_text(json.dumps(json.loads(path.read_text()) | {place: value}))
    with pytest.raises(ValueError, match=path.name) as told:
        write_report([tmp_path / "results"], tmp_path / "out")
    assert len(str(told.value)) < 500 and [each.name for each in tmp_path.iterdir()] == ["results"]


@pytest.mark.parametrize("name", ["manifest.json", "jobs/zigzag_bc_1_0.json"])
@pytest.mark.parametrize("depth", [990, 100_000])
def test_deeply_nested_files_are_refused(name: str, depth: int, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "results")
    path = tmp_path / "results" / name
    path.write_text(path.read_text().replace("{", '{"agents": {"bc": {"x": ' + "[" * depth + "]" * depth + "}},", 1))
    with pytest.raises(ValueError, match=path.name):
        write_report([tmp_path / "results"], tmp_path / "out")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes on Windows")
@pytest.mark.parametrize("plant", [lambda path: os.mkfifo(path), lambda path: path.symlink_to("/dev/zero"), Path.mkdir])
def test_what_is_no_file_is_not_read(plant: Any, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "results")
    path = tmp_path / "results" / "jobs" / "zigzag_bc_9_0.json"
    plant(path)
    with pytest.raises(ValueError, match=f"'{path}' is not a regular file"):
        write_report([tmp_path / "results"], tmp_path / "out")


def test_results_swapped_with_one_another_are_refused(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "results")
    one, two = ((tmp_path / "results" / "jobs" / f"zigzag_bc_{size}_0.json") for size in (1, 2))
    text = one.read_text()
    one.write_text(two.read_text())
    two.write_text(text)
    with pytest.raises(ValueError, match="holds the result of another job"):
        read_results(tmp_path / "results")


def test_scores_that_are_not_finite_fail_their_job_only(tiny: Sweep, tmp_path: Path) -> None:
    def nothing(result: EvalResult) -> dict[str, float]:
        return {"mean": float("nan")}

    assert run_sweep(replace(tiny, extra_metrics=nothing, seeds=1, num_demos=(1,)), tmp_path, here) == {}
    assert all("Expected `float`" in str(result.error) for result in read_results(tmp_path)[1].values())


def test_a_failed_jobs_text_cannot_garble_the_terminal_or_its_file(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def bad(job: Job) -> Outcome:
        raise SystemExit("[/red]\x1b[2J\ud800 | <b>*")

    def run(function: Callable[[Job], Outcome], jobs: Sequence[Job], workers: int | None) -> Outcomes[Job]:
        return here(lambda job: attempt(bad if job.cell.demos == 3 else function, job), jobs)

    monkeypatch.setattr(experiments, "run_local", run)
    told = []
    for _ in range(2):  # the second time, nothing is run
        with pytest.raises(SystemExit) as end:
            main(command(tmp_path / "out", file))
        told.append(capsys.readouterr())
        assert end.value.code == 2
        assert told[-1].err == "error: 6 jobs failed: rerun the command with --retry-failed\n"
    assert "[/red]\\x1b[2J" in told[0].out and "\x1b[2J" not in told[0].out
    assert "6 jobs were done before, 0 are left" in told[1].out
    main(["report", str(tmp_path / "out"), "--out", str(tmp_path / "report")])
    assert r"\[/red\]\\x1b\[2J\\ud800 \| \<b\>\*" in (tmp_path / "report" / "report.md").read_text()


def test_sweeps_that_join_at_once_keep_each_others_part(tiny: Sweep, tmp_path: Path) -> None:
    manifests = [replace(tiny, agents=(agent,)).manifest() for agent in ("bc", "pidm", "retrieval-bc")]
    with ThreadPoolExecutor() as threads:
        list(threads.map(partial(open_folder, tmp_path), manifests * 4))
    assert set(read_manifest(tmp_path).agents) == {"bc", "pidm", "retrieval-bc"}
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


HOSTILE = ["-1", "0", "nan", "1e308", "1e-320", "99999999999999999999"]
NUMERIC = ["seeds", "first-seed", "steps", "episodes", "num-demos", "checkpoint-fractions", "jobs", "cpus-per-job"]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("option", NUMERIC)
def test_hostile_numbers_are_refused_or_work(
    option: str, value: str, file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(library, "run_sweep", lambda *_, **__: {})
    given = command(tmp_path / "out", file, f"--{option}={value}")
    accepted = [("first-seed", "0")]
    if (option, value) in accepted:
        main(given)
        return
    with pytest.raises(SystemExit) as stopped:
        main(given)
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and option in error and error.count("\n") == 1


def test_a_full_disk_names_the_file_and_the_sweep_goes_on_later(file: Path, box: "Sandbox", tmp_path: Path) -> None:
    from sandbox import Limits

    out = tmp_path / "out"
    ended = box.run(command(out, file, "--jobs", "1"), out, limits=Limits(file_bytes=1000))
    assert ended.code == 2 and "Traceback" not in ended.err
    assert f"cannot write '{out / 'manifest.json'}'" in ended.err
    assert len(run_sweep(same(file), out, here)) == 12 and not list(out.rglob(".*"))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
def test_ray_workers_that_are_killed_do_not_change_the_results(tiny: Sweep, tmp_path: Path) -> None:
    def dying(job: Job) -> Outcome:
        first = tmp_path / job.cell.name
        if not first.exists():
            first.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return run_job(job)

    def run(function: Callable[[Job], Outcome], jobs: Sequence[Job]) -> Outcomes[Job]:
        return run_ray(dying, jobs, workers=2, address="local")

    run_sweep(replace(tiny, seeds=1), tmp_path / "killed", run)
    run_sweep(replace(tiny, seeds=1), tmp_path / "whole", here)
    assert len(scores(tmp_path / "killed")) == 4 and scores(tmp_path / "killed") == scores(tmp_path / "whole")


def test_gains_pair_cells_with_bc_of_the_same_draw() -> None:
    scores = {}
    for seed in range(8):
        for level in ("tour-3d", "four-room-3d"):
            scores[Cell(seed, level, 5, "bc")] = seed / 10
            scores[Cell(seed, level, 5, "pidm")] = seed / 10 + (0.1 if level == "tour-3d" else 0.0)
    scores[Cell(99, "tour-3d", 5, "pidm")] = 1.0  # has no partner
    everything, four_room, tour = paired_gains(scores)
    assert (everything["seeds"], tour["seeds"]) == (8, 8)  # seeds are what is independent, not pairs
    assert (everything["task"], everything["pairs"], everything["ahead"], everything["behind"]) == ("all", 16, 8, 0)
    assert everything["gain"] == pytest.approx(0.05) and everything["p"] < 0.05
    assert four_room["p"] == 1.0 and four_room["gain"] == 0.0
    assert tour["gain"] == pytest.approx(0.1) and tour["p"] == pytest.approx(2 / 2**8)
    (alone,) = paired_gains({cell: score for cell, score in scores.items() if cell.task == "tour-3d"})
    assert alone["task"] == "tour-3d" and alone["p_holm"] == alone["p"] == tour["p"]  # one test, counted once
