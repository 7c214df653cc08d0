"""Advice: the numbers against simulations, the rule, and the command on all kinds of demonstrations."""

import json
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import pidm_nav
from pidm_nav.agents import train
from pidm_nav.analysis.advice import Advice, advise, decide
from pidm_nav.analysis.held_out import VectorPolicy, Vectors, find_spaces, folds, part_errors
from pidm_nav.analysis.offline import action_effect, action_error, pushes
from pidm_nav.cli import main
from pidm_nav.demos import DemoDataset, Episode, collect, load_demos, save_demos
from pidm_nav.demos.experts.random_play import RandomPlay
from pidm_nav.statistics import Mean

QUICK = {"steps": 2, "episodes": 2}
PULL, NO_PULL = Mean(0.2, 0.1, 0.3, 0.01, 5), Mean(0.2, -0.1, 0.5, 0.2, 5)


def walks(episodes: int, noise: float, task: str = "Walk-v0", steps: int = 60) -> DemoDataset:
    """Points pushed about at random: s' = s + a + noise."""
    draw = np.random.default_rng(0)
    made = []
    for _ in range(episodes):
        actions = draw.normal(size=(steps, 2))
        moves = actions + noise * draw.normal(size=actions.shape)
        states = np.concatenate([np.zeros((1, 2)), np.cumsum(moves, axis=0)])
        made.append(Episode(states, actions, np.zeros(steps), terminated=False, truncated=True))
    return DemoDataset(task, tuple(made))


@pytest.fixture(scope="module")
def demos() -> DemoDataset:
    return load_demos("zigzag/human-like")


@pytest.mark.parametrize(("metric", "within"), [("goal ratio", True), ("return", False)])
def test_bars_of_ratios_stay_within_their_bounds(metric, within):
    scores = {"bc": [0.0, 0.0, 0.1], "pidm": [1.0, 1.0, 0.9]}
    found = Advice("maze", 3, 0, False, {}, {}, {}, metric, scores, "pidm", "high", "Train PIDM.")
    (ax,) = found.plot().axes
    ends = [x for line in ax.lines for x in line.get_xdata()]
    assert (min(ends) >= 0 and max(ends) <= 1) == within


@pytest.mark.thorough
def test_demonstrations_of_a_task_are_measured_and_tried(demos, tmp_path, capsys):
    found = pidm_nav.advise(demos[:4], **QUICK)
    assert isinstance(found, Advice) and found.agent in found.sentence
    assert (found.episodes, found.failed, found.goals_vary, found.metric) == (4, 0, False, "goal ratio")
    kinds = [f"{agent}/{kind}" for agent in ("pidm", "delta-pidm") for kind in ("true", "nearest", "follow", "learned")]
    assert list(found.errors) == ["bc", *kinds, "change"]
    assert all(mean.units == 4 and mean.low <= mean.value <= mean.high for mean in found.errors.values())
    assert {agent: len(scores) for agent, scores in found.scores.items()} == {"bc": 3, "pidm": 3, "delta-pidm": 3}
    assert found.linear_r2 > 0.8  # noise of 0.2 on actions that are nearly full sticks
    assert len(found.plot().axes) == 3
    assert found.to_json()["linear_r2"] == found.linear_r2

    save_demos(demos[:4], tmp_path / "mine.npz")
    options = ["--steps", "2", "--episodes", "2", "--plot", str(tmp_path / "a.png"), "--json", str(tmp_path / "a.json")]
    main(["advise", str(tmp_path / "mine.npz"), *options])
    told = capsys.readouterr().out
    assert "delta-PIDM" in told and "with true future" in told and "goals vary: no" in told and "Sure: " in told
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads((tmp_path / "a.json").read_text()) == json.loads(json.dumps(found.to_json()))  # the same again


@pytest.mark.thorough
def test_the_change_explains_what_it_should():
    """s' = s + a + n: the best linear guess of a leaves Var(n) / (1 + Var(n)) of its variance."""
    found = advise(walks(12, noise=0.5), steps=1)
    assert found.errors["change"].value == pytest.approx(0.2, abs=0.03)
    assert found.errors["change"].low < 0.2 < found.errors["change"].high
    assert found.errors["bc"].value == pytest.approx(1, abs=0.1)  # actions do not depend on the state
    assert not found.scores and not found.metric and found.sure == "low"
    assert len(found.plot().axes) == 2


def test_each_episode_is_held_out_once(demos):
    parts = folds(demos[:8], np.random.default_rng(0))
    assert [(len(training), len(held_out)) for training, held_out in parts] == [(5, 3), (5, 3), (6, 2)]
    assert sorted(id(each) for _, held_out in parts for each in held_out) == sorted(map(id, demos[:8]))
    assert all(not {*map(id, training)} & {*map(id, held_out)} for training, held_out in parts)


@pytest.mark.thorough
@pytest.mark.parametrize("number", [1, 2, 3])
def test_few_demonstrations_say_what_cannot_be_told(demos, number, capsys):
    found = advise(demos[:number], rollouts=False, **QUICK)
    assert ("these are too few to test that" in found.sentence) == (number < 3) and found.sure == "low"
    assert len(found.errors) == (0 if number == 1 else 10)
    if number == 1:
        assert np.isnan(found.linear_r2) and found.to_json()["linear_r2"] is None
        with pytest.raises(ValueError, match="nothing to plot"):
            found.plot()


def test_many_demonstrations_are_sampled(demos, monkeypatch):
    monkeypatch.setattr("pidm_nav.analysis.advice.MAX_EPISODES", 6)
    found = advise(demos, rollouts=False, steps=1)
    assert found.episodes == 6 and found.errors["bc"].units == 6


def test_failed_demonstrations_are_left_out(demos):
    keep = {"observations": 9, "actions": 8, "rewards": 8}
    cut = [replace(each, infos={}, **{name: getattr(each, name)[:n] for name, n in keep.items()}) for each in demos[:2]]
    failing = replace(demos, episodes=(*cut, *demos[2:5]))
    found = advise(failing, rollouts=False, **QUICK)
    assert (found.failed, found.episodes) == (2, 3)
    assert found.sentence.startswith(
        "2 of 5 demonstrations failed: leave them out (demos edit --keep successes). Train"
    )
    alone = advise(failing[:2], rollouts=False, **QUICK)
    assert (alone.failed, alone.episodes) == (2, 2) and alone.sentence.startswith("No demonstration succeeds")


def test_where_goals_vary_bc_is_advised():
    made = []
    for goal, each in enumerate(walks(2, 0.1)):
        shown = np.column_stack([each.observations, np.full(len(each) + 1, goal)])
        made.append(replace(each, observations=shown))
    found = advise(DemoDataset("Goals-v0", tuple(made)), **QUICK)
    assert found.goals_vary and found.agent == "bc" and "another episode's goal" in found.sentence


class Corridor(gym.Env):
    """Go left or right, on a line; choices begin at 1."""

    observation_space = spaces.Box(-50, 50, (1,))
    action_space = spaces.Discrete(2, start=1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = np.zeros(1, np.float32)
        return self.at, {}

    def step(self, action):
        self.at = self.at + np.float32(2 * action - 3)
        return self.at, float(self.at[0]), False, False, {}


def test_choices_count_as_one_hot_vectors():
    gym.register("Corridor-v0", Corridor, max_episode_steps=12)
    try:
        demos = collect(RandomPlay("Corridor-v0"), "Corridor-v0", 6)
        found = advise(demos, steps=60, episodes=2)
    finally:
        del gym.registry["Corridor-v0"]
    assert found.metric == "return" and len(found.scores["bc"]) == 3
    assert found.errors["change"].value == pytest.approx(0, abs=1e-6)  # a step to the right is the choice 2
    assert found.errors["delta-pidm/true"].value == pytest.approx(0, abs=1e-6)
    assert found.errors["bc"].value > 0.5
    shifted = replace(demos, task="Nowhere-v0")
    (_, own), metric = find_spaces(shifted)
    assert own == spaces.Discrete(3) and not metric
    assert advise(shifted, steps=2).errors["change"].value == pytest.approx(0, abs=1e-6)


def test_a_choice_that_returns_is_told_from_one_that_does_not():
    """Up and down on a plane while time moves to the right: choosing the side of 0 undoes a push to the other side."""

    class Home:
        listens = True

        def predict(self, observation, state=None, episode_start=None, deterministic=True):
            return (self.listens & (np.asarray(observation)[:, 1] < 0)).astype(int), None

    draw, made = np.random.default_rng(0), []
    for _ in range(20):
        choices = draw.integers(2, size=30)
        states = np.column_stack([np.arange(31), np.append(0, np.cumsum(2 * choices - 1))])
        made.append(Episode(states, choices[:, None], np.zeros(30), terminated=False, truncated=True))
    vectors = Vectors(spaces.Discrete(2))
    data = vectors.dataset(DemoDataset("Line-v0", tuple(made)))
    effect = action_effect(data)
    assert (effect.matrix[1] - effect.matrix[0]) * effect.rms == pytest.approx([0, 2], abs=1e-6)
    coefficients = []
    for Home.listens in (True, False):
        undone, pushed = pushes(VectorPolicy(Home(), vectors), data, effect, np.random.default_rng(0))
        coefficients.append((undone / pushed).mean())
    assert coefficients[0] > 0.05 and coefficients[1] == 0


@pytest.mark.parametrize(
    ("goals_vary", "linear_r2", "back", "scores", "agent", "sure"),
    [
        (False, 0.9, PULL, {}, "delta-pidm", "low"),
        (False, 0.3, PULL, {}, "pidm", "low"),
        (False, 0.9, NO_PULL, {}, "bc", "low"),
        (True, 0.9, PULL, {}, "bc", "low"),
        (False, 0.9, PULL, {"bc": [0.7] * 3, "pidm": [0.8] * 3, "delta-pidm": [0.9] * 3}, "delta-pidm", "high"),
        (False, 0.9, PULL, {"bc": [0.94] * 3, "pidm": [0.8] * 3, "delta-pidm": [0.9] * 3}, "delta-pidm", "high"),
        (False, 0.9, PULL, {"bc": [1, 0.9, 0.9], "pidm": [0] * 3, "delta-pidm": [0.9, 1, 1]}, "delta-pidm", "moderate"),
        (False, 0.9, PULL, {"bc": [0.98] * 3, "pidm": [0.8] * 3, "delta-pidm": [0.9] * 3}, "bc", "moderate"),
        (True, 0.9, PULL, {"bc": [0.5] * 3, "pidm": [0.1] * 3, "delta-pidm": [0.9] * 3}, "delta-pidm", "moderate"),
        (True, 0.9, PULL, {"bc": [0.04] * 3, "pidm": [0.0] * 3, "delta-pidm": [0.02] * 3}, "bc", "low"),
    ],
)
def test_the_rule_is_the_one_that_was_fixed(goals_vary, linear_r2, back, scores, agent, sure):
    found = decide(goals_vary, linear_r2, {"pidm": back, "delta-pidm": back}, scores)
    assert (found.agent, found.sure) == (agent, sure)


def test_a_single_demonstration_is_tracked_unless_rollouts_say_otherwise():
    assert decide(False, float("nan"), {}, {}).agent == "delta-pidm"
    tried = decide(False, float("nan"), {}, {"bc": [0.9] * 3, "pidm": [0.1] * 3, "delta-pidm": [0.2] * 3})
    assert (tried.agent, tried.sure) == ("bc", "low")


def refusal(capsys, *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        main(["advise", *words])
    assert end.value.code == 2
    return capsys.readouterr().err


def test_what_cannot_be_used_is_refused_in_a_sentence(demos, tmp_path, capsys):
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04" + bytes(40))
    assert "broken.npz" in refusal(capsys, str(tmp_path / "broken.npz"))
    save_demos(demos[:2].without_actions(), tmp_path / "seen.npz")
    assert "have no actions" in refusal(capsys, str(tmp_path / "seen.npz"))
    idle = tuple(replace(each, actions=np.zeros_like(each.actions)) for each in demos[:2])
    save_demos(replace(demos, episodes=idle), tmp_path / "idle.npz")
    assert "never vary" in refusal(capsys, str(tmp_path / "idle.npz"))
    frames = Episode(np.zeros((6, 8, 8, 3), np.uint8), np.ones((5, 1)), np.zeros(5), False, True)
    save_demos(DemoDataset("Pictures-v0", (frames,) * 3), tmp_path / "images.npz")
    assert "hold images" in refusal(capsys, str(tmp_path / "images.npz"))
    assert "is a folder" in refusal(capsys, "zigzag/astar", "--plot", str(tmp_path))
    seen = str(tmp_path / "seen.npz")
    before = (tmp_path / "seen.npz").read_bytes()
    assert "give a name that ends with .json" in refusal(capsys, seen, "--json", seen)
    assert "give a name that ends with .png or .pdf or .svg" in refusal(capsys, seen, "--plot", seen)
    assert (tmp_path / "seen.npz").read_bytes() == before
    assert "number of episodes is 0" in refusal(capsys, "zigzag/astar", "--episodes", "0")
    assert "the seed is -1" in refusal(capsys, "zigzag/astar", "--seed", "-1")
    assert "steps is 0" in refusal(capsys, "zigzag/astar", "--steps", "0", "--no-rollouts")


def test_long_episodes_are_asked_about_their_beginning(monkeypatch):
    monkeypatch.setattr("pidm_nav.analysis.held_out.MAX_STEPS", 10)
    data = walks(3, 0.5)
    asked = Vectors(spaces.Box(-1, 1, (2,))).dataset(data)
    assert [len(each) for each in asked] == [10] * 3


def test_errors_are_those_of_the_parts(demos):
    agents = {name: train(name, demos[:2], steps=2, progress=False) for name in ("bc", "pidm", "delta-pidm")}
    found = part_errors(agents, demos[:2], demos[2:4], Vectors(agents["bc"].action_space), 2)
    for name, kind in (("pidm", "nearest"), ("delta-pidm", "follow")):  # their own predictors
        each = [action_error(agents[name], demos[i : i + 1]) for i in (2, 3)]
        assert found[f"{name}/{kind}"] == pytest.approx(each, rel=1e-4)
