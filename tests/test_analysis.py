"""The analyses against brute force, known distributions and the paper's recordings; and their commands."""

import csv
import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tyro

from pidm_nav.agents.predictors import Nearest, Predictor, TimeIndexed
from pidm_nav.analysis.predictor import (
    NOISE_FLOOR,
    HorizonStudy,
    error_curve,
    fit_predictor,
    horizon_curve,
    plot_horizon_curves,
    predict_episodes,
    prediction_errors,
)
from pidm_nav.commands import load_command
from pidm_nav.demos import DemoDataset, Episode, load_demos, save_demos
from pidm_nav.demos.collect import collect
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.plots import DEMONSTRATOR_COLORS, demonstrator, demonstrator_color, demonstrator_title
from pidm_nav.tasks import PAPER_TASKS as TASKS
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.state import split_state


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def refused(*words: str) -> Any:
    return pytest.raises((ValueError, OSError), match=".*".join(words))


@pytest.fixture(scope="module")
def demos() -> dict[str, DemoDataset]:
    return {task: collect(AStarExpert(task), task, episodes=6, seed=3, made_by="astar") for task in TASKS}


def walks(episodes: int, steps: int = 40, seed: int = 0) -> DemoDataset:
    """A point pushed about at random: s' = s + a + noise, on the line."""
    draw = rng(seed)
    made = []
    for _ in range(episodes):
        actions = draw.normal(size=(steps, 1)).astype(np.float32)
        moves = actions + draw.normal(size=actions.shape)
        states = np.concatenate([np.zeros((1, 1)), np.cumsum(moves, axis=0)]).astype(np.float32)
        made.append(Episode(states, actions, np.zeros(steps), terminated=False, truncated=True))
    return DemoDataset("Walk-v0", tuple(made))


# ---- predictor


class Prophet(Predictor):
    """Knows the episodes that it is asked about, all of them at once, and misses every future by a shift."""

    def __init__(self, dataset: DemoDataset, horizon: int, shift: tuple[float, float]) -> None:
        super().__init__()
        self.dataset, self.ahead, self.shift = dataset, horizon, shift

    def learn(self, dataset: DemoDataset) -> None:
        """Know everything already."""

    def predict(self, states, memory=None, episode_start=None):
        step = 0 if memory is None else memory
        futures = np.stack([each.observations[min(step + self.ahead, len(each))] for each in self.dataset])
        futures[:, :2] += self.shift
        return futures, step + 1


def test_an_oracle_makes_no_error_and_a_shifted_one_its_shift(demos):
    for horizon in (1, 7):
        assert prediction_errors(Prophet(demos["maze"], horizon, (0, 0)), demos["maze"], horizon) == (0, 0, 0)
        errors = prediction_errors(Prophet(demos["maze"], horizon, (3, 4)), demos["maze"], horizon)
        assert errors == pytest.approx((5, 25, 0))


def test_errors_are_those_of_the_nearest_state_with_as_many_goals():
    data = collect(AStarExpert("zigzag"), "zigzag", episodes=6, seed=3, random_start=True)  # no two are equally near
    training, held_out = data[:4], data[4:]
    known, asked = training.transitions(3), held_out.transitions(3)
    distances = []
    for state, future in zip(asked.state, asked.future, strict=True):
        same = split_state(known.state)[2] == split_state(state)[2]
        apart = np.linalg.norm(known.state[same, :2].astype(float) - state[:2], axis=1)
        distances.append(np.linalg.norm(known.future[same][apart.argmin()].astype(float) - future))
    errors = prediction_errors(Nearest().fit(training, 3), held_out, 3)
    assert errors.distance == pytest.approx(np.mean(distances), rel=1e-6)


def test_a_predictor_that_counts_steps_is_walked_through_the_episodes(demos):
    one, others = demos["four-room"][:1], demos["four-room"][1:]
    predicted = predict_episodes(TimeIndexed().fit(one, 2), others)
    steps = others.transitions().step
    assert np.array_equal(predicted, one[0].observations[np.minimum(steps + 2, len(one[0]))])


def test_more_demonstrations_predict_better(demos):
    curve = error_curve(demos["maze"], sizes=(1, 5), subsets=4, rng=rng())
    one, five = curve.rows()
    assert (one["demos"], five["demos"]) == (1, 5)
    assert one["error"] > five["error"] + np.sqrt(3) * five["error_std"]  # none of 4 values lies further from the mean
    assert curve.rows() == error_curve(demos["maze"], sizes=(1, 5), subsets=4, rng=rng()).rows()


def test_the_noise_floor_is_the_distance_of_two_draws():
    draws = rng().normal(scale=0.2 * SPEED, size=(2, 200_000, 2))
    apart = np.linalg.norm(draws[0] - draws[1], axis=1).mean()
    assert apart == pytest.approx(NOISE_FLOOR, rel=0.01)


def test_sizes_leave_an_episode_to_predict(demos):
    for sizes in ((6,), (0, 1), ()):
        with refused("do not fit 6 demonstrations", "held out"):
            error_curve(demos["maze"], sizes=sizes, rng=rng())


# ---- horizon


def test_the_error_in_a_random_walk_is_twice_the_variance_which_grows_by_two_a_step():
    # s' = s + a + noise, both of variance 1; the nearest neighbour answers with one draw, not with the mean
    curve = horizon_curve(walks(60), HorizonStudy(horizons=(1, 4, 16), splits=5, training=40), rng=rng())
    assert curve.columns["squared_error"] == pytest.approx([4, 16, 64], rel=0.3)
    rows = curve.rows()
    assert [row["horizon"] for row in rows] == [1, 4, 16] and len(plot_horizon_curves([curve]).axes) == 1


def test_futures_cut_off_by_the_end_count_only_on_request():
    kept, clamped = (
        horizon_curve(walks(60), HorizonStudy(horizons=(30,), splits=3, clamp_end=clamp), rng=rng())
        for clamp in (False, True)
    )
    assert kept.rows()[0]["squared_error"] > 1.3 * clamped.rows()[0]["squared_error"]
    for clamp in (False, True):
        with refused("horizon is 41, and the longest episode has 40"):
            horizon_curve(walks(60), HorizonStudy(horizons=(1, 41), clamp_end=clamp), rng=rng())
    longest = walks(60)
    longest = dataclasses.replace(longest, episodes=(*(each.cut(0, 30) for each in longest[1:]), longest[0]))
    for splits in (1, 50):  # whichever episodes are held out
        with refused("horizons is 40, and the held-out episodes of a split may all have at most 30 steps"):
            horizon_curve(longest, HorizonStudy(horizons=(1, 40), splits=splits), rng=rng())
    assert len(horizon_curve(longest, HorizonStudy(horizons=(1, 30), splits=2), rng=rng()).rows()) == 2


def test_horizons_are_whole_numbers_on_their_axis():
    figure = plot_horizon_curves([horizon_curve(walks(20), HorizonStudy(horizons=(1, 2), splits=2), rng=rng())])
    assert all(tick == round(tick) for tick in figure.axes[0].get_xticks())


# ---- commands


def run(command: str, *arguments: Any) -> None:
    tyro.cli(load_command(f"analyze {command}"), args=list(map(str, arguments))).run()


def written(folder: Path, name: str) -> list[dict[str, str]]:
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory, demos: dict[str, DemoDataset]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("files")
    for task in ("zigzag", "maze"):
        save_demos(demos[task], folder / f"{task}.npz")
    return {task: folder / f"{task}.npz" for task in ("zigzag", "maze")}


def test_each_command_writes_a_figure_and_a_table(tmp_path, files, capsys):
    run("predictor", "--demos", *files.values(), "--sizes", 1, 3, "--subsets", 2, "--out", tmp_path)
    assert [row["task"] for row in written(tmp_path, "predictor")] == ["zigzag", "zigzag", "maze", "maze"]
    run("horizon", "--demos", files["maze"], "--horizons", 1, 5, "--splits", 2, "--training", 4, "--out", tmp_path)
    assert len(written(tmp_path, "horizon")) == 2
    told = capsys.readouterr().out
    assert all(word in told for word in ("Zigzag", "Maze", "A*", "k=5"))
    assert not list(tmp_path.glob(".*"))  # no temporary file is left


def test_bad_input_is_one_sentence(tmp_path, files):
    with refused("demonstrations of zigzag, not of maze"):
        run("horizon", "--demos", files["zigzag"], "--task", "Maze", "--out", tmp_path)
    (tmp_path / "file").touch()
    with refused("cannot write to", "choose another folder"):
        run("horizon", "--demos", files["zigzag"], "--out", tmp_path / "file")
    with refused("no demonstrations are given"):
        run("horizon", "--demos", "--out", tmp_path)
    with refused("seed is -1"):
        run("horizon", "--demos", files["zigzag"], "--seed", -1, "--out", tmp_path)
    with refused("horizon is 9999"):
        run("predictor", "--demos", files["zigzag"], "--horizon", 9999, "--out", tmp_path)
    assert not list(tmp_path.glob("*.csv"))


@pytest.mark.parametrize(
    ("command", "option", "value", "told"),
    [
        *(("predictor", "--sizes", value, "as at least one is held out") for value in (-1, 0, 10**20)),
        *(("predictor", "--subsets", value, "an integer from 1 to 10,000") for value in (-1, 0, 10**8, 10**20)),
        *(("predictor", "--horizon", value, "horizon") for value in (-1, 0, 10**20)),
        *(("horizon", "--horizons", value, "horizon") for value in (-1, 0, 10**20)),
        *(("horizon", "--splits", value, "an integer from 1 to 10,000") for value in (-1, 0, 10**8, 10**20)),
        *(("horizon", "--training", value, "cannot split 6 episodes") for value in (-1, 0, 10**20)),
    ],
)
def test_numbers_out_of_range_are_refused_in_a_sentence(tmp_path, files, command, option, value, told):
    with refused(told):
        run(command, "--demos", files["zigzag"], option, value, "--out", tmp_path)
    assert not list(tmp_path.iterdir())


def remade(dataset: DemoDataset, made_by: str = "me", **changes: Any) -> DemoDataset:
    """The dataset with some of its arrays changed by functions."""
    made = [
        dataclasses.replace(each, **{name: change(getattr(each, name)) for name, change in changes.items()})
        for each in dataset
    ]
    return DemoDataset(dataset.task, tuple(made), {"made_by": made_by})


def test_names_from_files_are_neither_formulas_nor_commands(tmp_path, demos, capsys):
    save_demos(remade(demos["zigzag"][:3], r"$\foo$ [/red]\x1b[31m"), tmp_path / "odd.npz")
    settings = {"predictor": ("--subsets", 2), "horizon": ("--splits", 2)}
    for command, options in settings.items():
        run(command, "--demos", tmp_path / "odd.npz", *options, "--out", tmp_path)
        assert written(tmp_path, command)
    told = capsys.readouterr().out
    assert r"$\foo$ [/red]\x1b[31m".replace("\x1b", "\\x1b") in told and "\x1b" not in told


def test_demonstrations_that_are_all_alike_are_predicted_without_error():
    line = DemoDataset(
        "Line-v0", tuple(Episode(np.arange(6.0)[:, None], np.ones((5, 1)), np.zeros(5), False, True) for _ in "ab")
    )
    (row,) = horizon_curve(line, HorizonStudy(horizons=(5,), splits=1), rng=rng()).rows()
    assert row["squared_error"] == 0
    with refused("1 demonstrations: give at least 2"):
        error_curve(line[:1], rng=rng())


@pytest.mark.parametrize("command", ["predictor", "horizon"])
def test_images_are_refused(tmp_path, command):
    episode = Episode(np.zeros((6, 8, 8, 3), np.uint8), np.ones((5, 1), np.float32), np.zeros(5), False, True)
    save_demos(DemoDataset("Pictures-v0", (episode,) * 3), tmp_path / "images.npz")
    with refused("hold images"):
        run(command, "--demos", tmp_path / "images.npz", "--out", tmp_path / "out")


@pytest.mark.thorough
def test_a_full_disk_leaves_the_old_figure_and_is_told_with_its_name(tmp_path, files, box):
    from sandbox import Limits

    out = tmp_path / "out"
    out.mkdir()
    (out / "horizon.png").write_text("old")
    words = ["analyze", "horizon", "--demos", str(files["zigzag"]), "--splits", "2", "--out", str(out)]
    done = box.run(words, out, limits=Limits(file_bytes=2000))
    told = f"error: cannot write '{out / 'horizon.png'}' (File too large): choose another place\n"
    assert (done.code, done.err) == (2, told)
    assert [path.name for path in out.iterdir()] == ["horizon.png"] and (out / "horizon.png").read_text() == "old"


def test_the_defaults_fit_as_few_demonstrations_as_record_makes(tmp_path, capsys):
    save_demos(collect(AStarExpert("zigzag"), "zigzag", episodes=10, made_by="astar"), tmp_path / "ten.npz")
    for command, few in (("predictor", ("--subsets", 2)), ("horizon", ("--splits", 2))):
        run(command, "--demos", tmp_path / "ten.npz", *few, "--out", tmp_path)
    assert [row["demos"] for row in written(tmp_path, "predictor")] == ["1", "2", "5"]
    assert [row["horizon"] for row in written(tmp_path, "horizon")][:3] == ["1", "5", "10"]


def test_demonstrators_are_told_by_what_made_the_data(demos):
    named = {"paper: maze_human": "human", "AStarExpert": "astar", "human-like": "human-like", "me": "me"}
    for made_by, name in named.items():
        dataset = DemoDataset("maze", demos["maze"].episodes, {"made_by": made_by})
        assert demonstrator(dataset) == demonstrator(made_by) == name
        assert demonstrator(demonstrator_title(dataset)) == name
    assert demonstrator_title("AStarExpert") == "A*"
    assert demonstrator_color("me") not in DEMONSTRATOR_COLORS.values()


def test_a_learned_predictor_starts_from_the_same_weights_each_time():
    demos = load_demos("zigzag/human-like")[:2]
    first, second = (next(fit_predictor("learned(steps=2)", demos).parameters()) for _ in range(2))
    assert (first == second).all()


def test_held_out_episodes_do_not_change_a_predictor():
    """Whatever else the dataset holds, the same training episodes give the same predictor."""
    demos, scales = load_demos("zigzag/human-like"), []

    class Noted(Nearest):
        def learn(self, dataset):
            super().learn(dataset)
            scales.append(self.scale.width.clone())

    error_curve(demos[:2], Noted, sizes=(1,), subsets=6, rng=rng())
    assert len(torch.stack(scales).unique(dim=0)) == 2  # one for each of the two episodes that it was fitted on
