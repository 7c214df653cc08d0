"""The analyses against brute force, known distributions and the paper's recordings; and their commands."""

import csv
import dataclasses
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
import tyro
from hypothesis import given
from hypothesis import strategies as st

from pidm_nav.agents import AGENTS, BC, PIDM
from pidm_nav.agents.agent import make_agent
from pidm_nav.agents.predictors import Nearest, Predictor, TimeIndexed
from pidm_nav.agents.train import dataset_spaces
from pidm_nav.analysis.correlation import plot_correlation, sweep_correlation
from pidm_nav.analysis.field import DIRECTIONS, futures_around, measure_field, plot_field
from pidm_nav.analysis.gap import ZONES, decompose, goal_zones, measure_gap, plot_gap
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
from pidm_nav.analysis.states import cluster_states, state_dataset
from pidm_nav.commands import analysis as commands
from pidm_nav.demos import DemoDataset, Episode, load_demos, save_demos
from pidm_nav.demos.collect import collect
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.experiments.results import Checkpoint, JobResult, identity, open_folder, write_result
from pidm_nav.experiments.sweep import Sweep, sample_demos
from pidm_nav.plots import DEMONSTRATOR_COLORS, demonstrator, demonstrator_color, demonstrator_title
from pidm_nav.tasks import PAPER_TASKS as TASKS
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.state import join_state, shift_goals, split_state


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


# ---- gap


labels = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=60)


@given(labels, st.integers(0, 2**31))
def test_the_parts_add_up_to_the_variance_and_match_their_definition(cells, seed):
    now, future = np.array(cells).T
    actions = rng(seed).normal(size=(len(cells), 2))
    parts = decompose(actions, now, future)
    assert np.allclose(parts["variance"], parts["within"] + parts["delta"], atol=1e-12)
    assert (parts["delta"] >= 0).all() and parts["count"].sum() == len(cells)
    for i, cluster in enumerate(parts["cluster"]):
        inside = now == cluster
        means = [actions[inside & (future == other)].mean(axis=0) for other in future[inside]]
        assert parts["delta"][i] == pytest.approx(np.var(means, axis=0).sum(), abs=1e-12)
        assert parts["variance"][i] == pytest.approx(np.var(actions[inside], axis=0).sum(), abs=1e-12)
        assert parts["futures"][i] == len(set(future[inside]))


def test_chance_is_the_mean_over_shuffled_futures():
    draw = rng(1)
    actions, future, now = draw.normal(size=(24, 2)), draw.integers(6, size=24), np.zeros(24, dtype=np.int64)
    shuffled = [decompose(actions, now, draw.permutation(future))["delta"][0] for _ in range(4000)]
    error = np.std(shuffled) / np.sqrt(len(shuffled))
    assert decompose(actions, now, future)["chance"][0] == pytest.approx(np.mean(shuffled), abs=5 * error)


@pytest.mark.parametrize("signal", [0.0, 0.7])
def test_the_correction_takes_off_the_scatter_of_small_cells(signal):
    draw = rng(2)
    future = np.repeat(np.arange(5), [1, 1, 2, 3, 5])  # cells of one sample too
    means = signal * np.array([-2, 1, 0, 1, -1.0])[future]
    truth = means.var()
    now = np.zeros(len(future), dtype=np.int64)
    found = [decompose(means[:, None] + draw.normal(size=(12, 1)), now, future) for _ in range(3000)]
    corrected = np.array([parts["corrected"][0] for parts in found])
    assert corrected.mean() == pytest.approx(truth, abs=5 * corrected.std() / np.sqrt(len(found)))
    assert np.mean([parts["delta"][0] for parts in found]) > truth + 0.25  # 4 spare means of variance 1, over 12


def test_delta_of_a_known_problem():
    # all states are one cluster; a tells s' = a + noise apart up to the noise: Delta = 1/2, and Var(a) = 1
    draw = rng(3)
    actions = draw.normal(size=(40_000, 1))
    future = np.round((actions + draw.normal(size=actions.shape))[:, 0] * 8).astype(np.int64)
    parts = decompose(actions, np.zeros(len(actions), dtype=np.int64), future)
    assert parts["variance"][0] == pytest.approx(1, abs=0.03)
    assert parts["corrected"][0] == pytest.approx(0.5, abs=0.02)


@pytest.mark.parametrize("task", TASKS)
def test_clusters_never_mix_goals_and_every_task_has_a_gap(demos, task):
    dataset = demos[task]
    found = cluster_states(dataset, 60, rng())
    states = np.concatenate([episode.observations for episode in dataset])
    reached, label = split_state(states)[2], found.assign(states)
    assert all(len(np.unique(reached[label == each])) == 1 for each in np.unique(label))
    gap = measure_gap(dataset, 60, rng=rng())
    row = gap.summary()
    assert row["law_error"] < 1e-12 and row["samples"] == dataset.num_steps
    assert row["variance"] == pytest.approx(row["within"] + row["delta"])
    assert np.allclose(sum(gap.columns[zone] for zone in ZONES), 1) and (gap.columns["goals_reached"] % 1 == 0).all()
    assert len(gap.rows()) == len(gap.columns["cluster"]) and len(plot_gap([gap]).axes) == 2


def test_zones_are_around_the_current_and_the_other_goals():
    goals = TASKS["four-room"].layout().goals
    positions = np.stack([goals[1] + [0, 50], goals[0] + [50, 0], (400, 400)])
    state = join_state(positions, np.broadcast_to(goals, (3, *goals.shape)), np.ones(3, np.int64))
    distance, zones = goal_zones(state)
    assert distance[0] == 50 and zones.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_goals_observed_relatively_make_no_difference(demos):
    plain, made = demos["zigzag"], []
    for episode in plain:
        made.append(dataclasses.replace(episode, observations=shift_goals(episode.observations, -1)))
    data = DemoDataset("zigzag", tuple(made), {"made_by": "astar", "env_kwargs": {"relative_goals": True}})
    assert np.allclose(state_dataset(data)[0].observations, plain[0].observations, atol=1e-3)
    gaps = [measure_gap(each, 40, rng=rng()).summary()["delta"] for each in (data, plain)]
    assert gaps[0] == pytest.approx(gaps[1], rel=1e-3)


def test_a_gap_without_a_map_has_numbers_but_no_figure():
    gap = measure_gap(_plane(), 20, rng=rng())
    assert gap.summary()["law_error"] < 1e-12 and np.isnan(gap.summary()["delta_arriving"])
    with refused("no map"):
        plot_gap([gap])


def _plane() -> DemoDataset:
    """Walks in two dimensions."""
    pairs = zip(walks(8, seed=1), walks(8, seed=2), strict=True)
    made = [Episode(np.hstack([a.observations, b.observations]), a.actions, a.rewards, False, True) for a, b in pairs]
    return DemoDataset("Plane-v0", tuple(made))


def test_more_clusters_than_states_are_refused(demos):
    with refused("100000 clusters of", "give more demonstrations"):
        measure_gap(demos["maze"], 100_000, rng=rng())


@pytest.mark.parametrize("task", TASKS)
def test_people_differ_around_goals_and_the_planner_does_not(shared: Path, task: str):
    folder = shared / "data" / "reference_demos"
    name = task.replace("-", "_")
    human, astar = (
        measure_gap(load_demos(folder / f"{name}_{who}.npz"), rng=rng()).summary() for who in ("human", "astar")
    )
    assert human["demonstrator"] == "human" and astar["demonstrator"] == "A*"
    assert human["corrected_ratio"] > 4 and human["delta_arriving"] > 3 * human["delta_elsewhere"]
    assert astar["corrected_ratio"] < 2 and astar["delta"] < human["delta"]


# ---- field


class Scripted(PIDM):
    """PIDM whose inverse dynamics are written down."""

    listens = 1.0

    def inverse_dynamics(self, observations, futures, horizon=None):
        moves = (np.asarray(futures)[:, :2] - np.asarray(observations)[:, :2]) / SPEED
        return self.listens * moves + (1 - self.listens) * np.array([0.8, 0.0])


def scripted(dataset: DemoDataset, listens: float) -> Scripted:
    agent = Scripted(*dataset_spaces(dataset))
    agent.listens = listens
    return agent


@pytest.mark.parametrize("task", TASKS)
def test_the_queried_futures_are_what_the_environment_does(demos, task):
    dataset = demos[task]
    states = dataset.transitions().state[rng().integers(dataset.num_steps, size=40)]
    futures, moves = futures_around(TASKS[task].layout(), states)
    env = gym.make(TASKS[task].env_id, noise_std=0.0)
    env.reset(seed=0)
    inner: Any = env.unwrapped
    for i, state in enumerate(states):
        for j, direction in enumerate(DIRECTIONS):
            inner.set_state(state)
            observation = inner.step(direction.astype(np.float32))[0]
            assert np.array_equal(observation, futures[i, j])
            assert np.allclose(observation[:2] - state[:2], moves[i, j], atol=1e-3)


@pytest.mark.parametrize("task", TASKS)
def test_turn_and_gain_tell_a_model_that_listens_from_one_that_does_not(demos, task):
    places = 30
    deaf, listening = (
        measure_field(scripted(demos[task], listens), demos[task], places, rng=rng()) for listens in (0.0, 1.0)
    )
    assert np.allclose(deaf.columns["turn"], 0, atol=1e-6) and np.allclose(deaf.columns["gain"], 0, atol=1e-6)
    assert np.allclose(listening.columns["gain"], 1) and np.median(listening.columns["turn"]) > 0.9
    ax, _ = plot_field([listening]).axes
    (star,) = ax.child_axes
    assert len(listening.rows()) == 8 * places and star.texts[0].get_text() == "direction of the\nfuture asked for"


def test_the_field_uses_the_papers_number_of_places(demos):
    sizes = [measure_field(scripted(d, 1.0), d, rng=rng()).summary()["places"] for d in demos.values()]
    assert sizes == [50, 50, 75, 75]


def test_only_a_model_of_the_same_task_will_do(demos):
    bc = make_agent(BC, dataset_spaces(demos["maze"]))
    with refused("agent is bc, which has no inverse dynamics model"):
        measure_field(bc, demos["maze"], rng=rng())
    other = scripted(demos["maze"], 1.0)
    other.description = {"task": "maze"}
    with refused("agent learned maze", "demonstrations are of zigzag"):
        measure_field(other, demos["zigzag"], rng=rng())
    with refused("observations of shape"):
        measure_field(scripted(demos["maze"], 1.0), demos["zigzag"], rng=rng())
    assert {"bc", "pidm"} <= set(AGENTS) and issubclass(AGENTS["bc"], BC)


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


def test_variance_grows_by_two_a_step_in_a_random_walk_and_the_error_is_twice_that():
    # s' = s + a + noise, both of variance 1; the nearest neighbour answers with one draw, not with the mean
    curve = horizon_curve(walks(60), HorizonStudy(horizons=(1, 4, 16), splits=5, training=40, clusters=150), rng=rng())
    assert curve.columns["future_variance"] == pytest.approx([2, 8, 32], rel=0.25)
    assert curve.columns["squared_error"] == pytest.approx([4, 16, 64], rel=0.3)
    rows = curve.rows()
    assert [row["horizon"] for row in rows] == [1, 4, 16] and len(plot_horizon_curves([curve]).axes) == 1


def test_futures_cut_off_by_the_end_count_only_on_request():
    kept, clamped = (
        horizon_curve(walks(60), HorizonStudy(horizons=(30,), splits=3, clusters=100, clamp_end=clamp), rng=rng())
        for clamp in (False, True)
    )
    assert kept.rows()[0]["squared_error"] > 1.3 * clamped.rows()[0]["squared_error"]
    for clamp in (False, True):
        with refused("no episode has 41 steps, the longest has 40"):
            horizon_curve(walks(60), HorizonStudy(horizons=(1, 41), clamp_end=clamp), rng=rng())


# ---- correlation with sweeps


@pytest.fixture
def sweep(tmp_path: Path, demos: dict[str, DemoDataset]) -> Path:
    save_demos(demos["maze"], tmp_path / "maze_astar.npz")
    plan = planned(tmp_path, agents=("bc", "pidm"), num_demos=(1, 2, 5, 6))
    manifest = open_folder(tmp_path / "results", plan.manifest())
    for cell in plan.cells():
        scores = [Checkpoint(step=1, goal_ratio=cell.demos / 10)]
        job = JobResult(cell.task, cell.agent, cell.demos, cell.seed, identity(manifest, cell), checkpoints=scores)
        write_result(tmp_path / "results", job)
    return tmp_path / "results"


def planned(folder: Path, **settings: Any) -> Sweep:
    return Sweep(demos=(str(folder / "maze_astar.npz"),), seeds=2, **settings)


def test_a_sweeps_performance_stands_beside_the_error_of_its_own_demonstrations(sweep, demos):
    found = sweep_correlation([sweep], [demos["zigzag"], demos["maze"]])
    assert found.settings == 3 and [curve.task for curve in found.curves] == ["maze"]
    points = found.curves[0].rows()
    assert [(p["demos"], p["seeds"], p["goal_ratio"]) for p in points] == [(1, 2, 0.1), (2, 2, 0.2), (5, 2, 0.5)]
    errors = []
    for cell in planned(sweep.parent, agents=("pidm",), num_demos=(2,)).cells():
        training = sample_demos(demos["maze"], cell)
        others = [i for i, episode in enumerate(demos["maze"]) if episode not in training.episodes]
        errors.append(prediction_errors(Nearest().fit(training), demos["maze"][others]).distance)
    assert points[1]["error"] == pytest.approx(np.mean(errors))
    assert found.spearman == pytest.approx(-1) and len(plot_correlation(found).axes) == 1


def test_a_sweep_of_other_demonstrations_is_refused(sweep, demos):
    with refused("learned maze from other demonstrations", "name the same files"):
        sweep_correlation([sweep], [demos["maze"][:5]])
    with refused("hold 0 results of retrieval-bc"):
        sweep_correlation([sweep], [demos["maze"]], agent="retrieval-bc")


# ---- commands


def run(command: str, *arguments: Any) -> None:
    tyro.cli(getattr(commands, command.title()), args=list(map(str, arguments))).run()


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


def test_each_command_writes_a_figure_and_a_table(tmp_path, files, sweep, capsys):
    run("gap", "--demos", *files.values(), "--clusters", 50, "--out", tmp_path)
    assert [row["task"] for row in written(tmp_path, "gap")] == ["zigzag", "maze"]
    assert len(list(csv.DictReader((tmp_path / "gap_clusters.csv").open()))) > 80
    options = ("--sizes", 1, 3, "--subsets", 2, "--results", sweep)
    run("predictor", "--demos", *files.values(), *options, "--out", tmp_path)
    assert len(written(tmp_path, "predictor")) == 4 and len(written(tmp_path, "correlation")) == 3
    options = ("--horizons", 1, 5, "--splits", 2, "--training", 4, "--clusters", 50)
    run("horizon", "--demos", files["maze"], *options, "--out", tmp_path)
    assert len(written(tmp_path, "horizon")) == 2
    run("field", "--demos", files["zigzag"], "--steps", 3, "--places", 20, "--out", tmp_path)
    assert [row["places"] for row in written(tmp_path, "field")] == ["20"]
    told = capsys.readouterr().out
    assert all(word in told for word in ("Zigzag", "Maze", "A*", "Spearman -1.00", "k=5", "elsewhere"))
    assert not list(tmp_path.glob(".*"))  # no temporary file is left


def test_bad_input_is_one_sentence(tmp_path, files, demos):
    with refused("demonstrations of zigzag, not of maze"):
        run("gap", "--demos", files["zigzag"], "--task", "Maze", "--out", tmp_path)
    with refused("5000 clusters of"):
        run("gap", "--demos", files["zigzag"], "--clusters", 5000, "--out", tmp_path)
    make_agent(BC, dataset_spaces(demos["maze"])).save(tmp_path / "bc")
    with refused("agent is bc"):
        run("field", "--demos", files["maze"], "--agent", tmp_path / "bc", "--out", tmp_path)
    (tmp_path / "file").touch()
    with refused("cannot write to", "choose another folder"):
        run("gap", "--demos", files["zigzag"], "--out", tmp_path / "file")
    with refused("no demonstrations given"):
        run("gap", "--demos", "--out", tmp_path)
    with refused("seed is -1"):
        run("gap", "--demos", files["zigzag"], "--seed", -1, "--out", tmp_path)
    with refused("radius is -5"):
        run("gap", "--demos", files["zigzag"], "--radius", -5, "--out", tmp_path)
    with refused("horizon is 9999", "longest episode has"):
        run("gap", "--demos", files["zigzag"], "--horizon", 9999, "--out", tmp_path)
    with refused("no episode has 9999 steps"):
        run("predictor", "--demos", files["zigzag"], "--horizon", 9999, "--out", tmp_path)
    with refused("places is 0"):
        run("field", "--demos", files["zigzag"], "--places", 0, "--out", tmp_path)
    assert not list(tmp_path.glob("*.csv"))


@pytest.mark.parametrize(
    ("command", "option", "value", "told"),
    [
        ("gap", "--clusters", 10**20, "choose 1 to"),
        ("gap", "--horizon", 10**20, "choose 1 to"),
        *(
            ("gap", "--radius", value, "give a number of pixels above 0, at most 10000")
            for value in (0, "nan", 1e20, 1e308)
        ),
        *(("field", "--places", value, "choose 1 to the number of steps") for value in (-1, 0, 10**20)),
        *(("predictor", "--sizes", value, "as at least one is held out") for value in (-1, 0, 10**20)),
        *(("predictor", "--subsets", value, "a whole number from 1 to 10,000") for value in (-1, 0, 10**8, 10**20)),
        *(("predictor", "--horizon", value, "horizon") for value in (-1, 0, 10**20)),
        *(("horizon", "--horizons", value, "horizon") for value in (-1, 0, 10**20)),
        *(("horizon", "--splits", value, "a whole number from 1 to 10,000") for value in (-1, 0, 10**8, 10**20)),
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
    settings = {"gap": ("--clusters", 20), "predictor": ("--subsets", 2), "horizon": ("--splits", 2)}
    for command, options in settings.items():
        run(command, "--demos", tmp_path / "odd.npz", *options, "--out", tmp_path)
        assert written(tmp_path, command)
    told = capsys.readouterr().out
    assert r"$\foo$ [/red]\x1b[31m".replace("\x1b", "\\x1b") in told and "\x1b" not in told


def test_demonstrations_that_tell_nothing_have_numbers_or_are_refused(tmp_path, demos):
    idle = remade(demos["zigzag"], actions=np.zeros_like)
    row = measure_gap(idle, 30, rng=rng()).summary()
    assert row["delta"] == 0 and np.isnan(row["delta_ratio"])
    assert np.isnan(measure_gap(demos["zigzag"], 1, rng=rng()).summary()["delta_ratio"])  # one cluster has one future
    still = remade(demos["zigzag"], observations=lambda states: np.repeat(states[:1], len(states), axis=0))
    for clusters in (None, 1, 5):
        with refused("never leave one state"):
            measure_gap(still, clusters, rng=rng())
    line = DemoDataset(
        "Line-v0", tuple(Episode(np.arange(6.0)[:, None], np.ones((5, 1)), np.zeros(5), False, True) for _ in "ab")
    )
    (row,) = horizon_curve(line, HorizonStudy(horizons=(5,), splits=1), rng=rng()).rows()
    assert row["future_variance"] == row["squared_error"] == 0 and np.isnan(row["ratio"])
    with refused("1 demonstrations: give at least 2"):
        error_curve(line[:1], rng=rng())


@pytest.mark.parametrize("command", ["predictor", "horizon"])
def test_images_are_refused(tmp_path, command):
    episode = Episode(np.zeros((6, 8, 8, 3), np.uint8), np.ones((5, 1), np.float32), np.zeros(5), False, True)
    save_demos(DemoDataset("Pictures-v0", (episode,) * 3), tmp_path / "images.npz")
    with refused("hold images"):
        run(command, "--demos", tmp_path / "images.npz", "--out", tmp_path / "out")


def test_a_full_disk_leaves_the_old_figure_and_is_told_with_its_name(tmp_path, files, box):
    from sandbox import Limits

    out = tmp_path / "out"
    out.mkdir()
    (out / "gap.png").write_text("old")
    words = ["analyze", "gap", "--demos", str(files["zigzag"]), "--clusters", "20", "--out", str(out)]
    done = box.run(words, out, limits=Limits(file_bytes=2000))
    told = f"error: cannot write '{out / 'gap.png'}' (File too large): choose another place\n"
    assert (done.code, done.err) == (2, told)
    assert [path.name for path in out.iterdir()] == ["gap.png"] and (out / "gap.png").read_text() == "old"


def test_what_cannot_work_is_refused_before_any_work(tmp_path, files):
    save_demos(_plane(), tmp_path / "plane.npz")
    for command in ("gap", "field"):
        with refused("'Plane-v0' have no map"):
            run(command, "--demos", tmp_path / "plane.npz", "--out", tmp_path)
    with refused("nofolder' holds no manifest.json"):
        run("predictor", "--demos", files["maze"], "--results", tmp_path / "nofolder", "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["plane.npz"]


def test_the_defaults_fit_as_few_demonstrations_as_record_makes(tmp_path, capsys):
    save_demos(collect(AStarExpert("zigzag"), "zigzag", episodes=10, made_by="astar"), tmp_path / "ten.npz")
    for command, few in (("gap", ()), ("predictor", ("--subsets", 2)), ("horizon", ("--splits", 2))):
        run(command, "--demos", tmp_path / "ten.npz", *few, "--out", tmp_path)
    assert [row["demos"] for row in written(tmp_path, "predictor")] == ["1", "2", "5"]
    assert [row["horizon"] for row in written(tmp_path, "horizon")][:3] == ["1", "5", "10"]


def test_the_legend_below_the_panels_fits_into_the_figure():
    curve = horizon_curve(walks(10), HorizonStudy(horizons=(1, 4), splits=2), rng=rng())
    figure = plot_horizon_curves([curve])
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box, whole = legend.get_window_extent(), figure.bbox
    assert whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0


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
