"""Rollouts of any policy: the same episodes as a plain Gymnasium loop, and figures that follow from them."""

import dataclasses
import gc
import sys
import tracemalloc

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec

from pidm_nav import (
    PAPER_TASKS,
    AStarExpert,
    HumanLikePlayer,
    Rollout,
    collect,
    evaluate,
    find_task,
    load_demos,
    rollout,
)
from pidm_nav.cli import main
from pidm_nav.rollouts.rollout import Ending
from pidm_nav.tasks import task_name

LANE = {"layout": "............\n.A.1.2..3...\n............\n", "room_size": [600, 150]}


class Constant:
    """Always the same action; remembers how it was called."""

    def __init__(self, action):
        self.action, self.calls = action, []

    def predict(self, observation, state=None, episode_start=None, deterministic=True):
        self.calls.append((state, episode_start))
        return np.tile(np.float32(self.action), (len(observation), 1)), (0 if state is None else state + 1)


@pytest.mark.parametrize("task", PAPER_TASKS.values(), ids=PAPER_TASKS)
def test_episodes_are_those_of_a_plain_loop(task):
    expert = AStarExpert(task)
    result = evaluate(expert, task, episodes=3, seed=20)
    env = gym.make(task.env_id)
    for row, seed in enumerate(result.seeds.tolist()):
        observation, info = env.reset(seed=seed)
        states = [observation]
        ended = False
        while not ended:
            observation, _, terminated, truncated, info = env.step(expert.predict(observation)[0])
            states.append(observation)
            ended = terminated or truncated
        np.testing.assert_array_equal(result.episodes[row].observations, states)
        assert result.length[row] == len(states) - 1
        assert result.goal_ratio[row] == info["goal_ratio"]
        assert result.success[row] == info["is_success"]


def test_figures_of_a_policy_that_stands_still_and_of_one_that_succeeds():
    still = evaluate(Constant([0, 0]), "maze", episodes=4)
    assert (still.mean_goal_ratio, still.success_rate, still.interval) == (0.0, 0.0, (0.0, 0.0))
    assert still.length.tolist() == [300] * 4
    right = evaluate(Constant([1, 0]), "custom", episodes=4, noise_std=0.0, **LANE)
    assert right.success.all()
    assert right.returns.tolist() == [3.0] * 4
    assert right.summary()["goal_ratio"] == 1.0
    assert right.table()[2] == {
        "seed": 1_000_002, "goal_ratio": 1.0, "success": True, "length": int(right.length[2]), "return": 3.0
    }  # fmt: skip


def test_the_interval_holds_the_mean():
    expert = AStarExpert("four-room")
    result = evaluate(expert, "four-room", episodes=40, max_steps=50, random_start=True)
    low, high = result.interval
    assert 0 < low < result.mean_goal_ratio < high < 1


@pytest.mark.parametrize("rows", [1, 3, 7])
def test_any_number_of_rows_gives_the_same_episodes(rows):
    task, seeds, ended = find_task("four-room"), range(5, 12), []
    whole = rollout(Constant([0.3, -0.2]), task.make_vec(7, max_steps=30), seeds)
    parts = rollout(Constant([0.3, -0.2]), task.make_vec(rows, max_steps=30), seeds, progress=ended.append)
    assert sum(ended) == 7
    for seed, a, b in zip(seeds, whole, parts, strict=True):
        assert a.seed == b.seed == seed
        np.testing.assert_array_equal(a.observations, b.observations)


@pytest.mark.parametrize(("rows", "episodes"), [(1, 5), (3, 5), (16, 50), (1024, 3)])
def test_rows_are_made_for_the_episodes_and_few_are_left_over(rows, episodes):
    made = dataclasses.replace(find_task("maze"), rows=rows).rows_for(episodes)
    waves = -(-episodes // made)
    assert made <= rows and waves == -(-episodes // rows) and made * waves - episodes < waves


def test_a_rollout_goes_step_by_step():
    running = Rollout(Constant([1, 0]), find_task("custom").make_vec(1, noise_std=0.0, **LANE), [0])
    reached = []
    while not running.done:
        running.step()
        reached.append(int(running.goals_reached[0]))
    assert sorted(reached) == reached and reached[-1] == 3 == running.returns[0]
    (episode,) = running.episodes()
    assert len(episode) == running.steps[0] == len(reached) and episode.success
    np.testing.assert_array_equal(episode.infos["goals_reached"], [0, *reached])


@pytest.mark.parametrize("expert", [AStarExpert, HumanLikePlayer])
@pytest.mark.parametrize("observed", [{"obs_type": "pixels", "image_size": 32}, {"relative_goals": True}])
def test_experts_play_whatever_is_observed(expert, observed):
    plain, other = (collect(expert("zigzag"), "zigzag", 2, max_steps=20, **each) for each in ({}, observed))
    for a, b in zip(plain, other, strict=True):
        np.testing.assert_array_equal(a.actions, b.actions)
        np.testing.assert_array_equal(a.observations, b.infos["states"])
        assert (a.observations.shape != b.observations.shape) or (a.observations != b.observations).any()


def test_anybodys_environment_is_rolled_out_collected_and_scored():
    swing = evaluate(Constant([2.0]), "Pendulum-v1", episodes=20, seed=3)
    assert swing.metric == "return" and swing.length.tolist() == [200] * 20
    env = gym.make("Pendulum-v1")
    env.reset(seed=7)
    assert swing.returns[4] == pytest.approx(sum(env.step(np.float32([2.0]))[1] for _ in range(200)), rel=1e-5)
    pushed = collect(Constant([1.0]), "MountainCarContinuous-v0", 2, max_steps=30)
    assert pushed.task == "MountainCarContinuous-v0" and pushed[0].observations.shape == (31, 2)
    assert evaluate(Constant(1), "CartPole-v1", 3).returns.max() < 12  # always to the right


def test_dict_observations_are_flattened_and_success_is_what_the_environment_reports():
    gym.register("Reach-v0", entry_point=Reach, max_episode_steps=9)
    try:
        result = evaluate(Constant([0.25]), "Reach-v0", episodes=3, metric="success rate")
        assert result.metric == "success rate" and result.success.all()
        assert result.length.tolist() == [9] * 3 and not result.episodes[0].terminated
        assert result.episodes[0].observations.shape == (10, 2)
        assert not evaluate(Constant([-0.25]), "Reach-v0", episodes=3, metric="success rate").success.any()
        film = evaluate(Constant([0.25]), "Reach-v0", episodes=2, film=1)
        assert [frame[0, 0, 0] for frame in film.frames(1)] == list(range(10))
        with pytest.raises(ValueError, match="was not filmed"):
            film.frames(0)
    finally:
        del gym.registry["Reach-v0"]


class Reach(gym.Env):
    """Reports success at x = 1 and goes on."""

    metadata = {"render_modes": ["rgb_array"]}  # noqa: RUF012
    observation_space = gym.spaces.Dict({"x": gym.spaces.Box(-9, 9, (1,)), "goal": gym.spaces.Box(-9, 9, (1,))})
    action_space = gym.spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.steps = np.zeros(1, np.float32), 0
        return {"x": self.x, "goal": np.ones(1, np.float32)}, {}

    def step(self, action):
        self.x, self.steps = self.x + action, self.steps + 1
        observation = {"x": self.x, "goal": np.ones(1, np.float32)}
        return observation, 0.0, False, False, {"success": bool(self.x[0] == 1.0)}

    def render(self):
        return np.full((4, 4, 3), self.steps, np.uint8)


def test_the_policy_s_memory_comes_back_and_starts_are_marked_once():
    policy = Constant([0, 0])
    evaluate(policy, "maze", episodes=2, max_steps=3)
    assert [state for state, _ in policy.calls] == [None, 0, 1]
    assert [start.tolist() for _, start in policy.calls] == [[True, True], [False, False], [False, False]]


def test_observations_are_what_the_environment_shows():
    (kept,) = collect(Constant([0.5, 0]), "maze", episodes=1, max_steps=5, observe_goals=False)
    np.testing.assert_array_equal(kept.observations, kept.infos["states"][:, :2])
    (plain,) = collect(Constant([0.5, 0]), "maze", episodes=1, max_steps=5)
    assert "states" not in plain.infos and plain.observations.shape == kept.infos["states"].shape


def test_a_video_of_any_episode(tmp_path):
    result = evaluate(Constant([1, 0]), "custom", episodes=2, **LANE)
    path = result.video(tmp_path / "episode.gif", episode=1, size=120)
    assert path.read_bytes()[:3] == b"GIF"
    assert len(result.frames(1, 64)) == result.length[1] + 1
    with pytest.raises(ValueError, match="no episode 2"):
        result.video(tmp_path / "none.gif", episode=2)


def test_nothing_of_an_evaluation_stays_when_its_result_is_let_go():
    """However many episodes were evaluated, only the numbers that are kept of them take memory."""
    expert, held = AStarExpert("zigzag"), []

    def evaluate_often(times):
        for seed in range(times):
            held.append(evaluate(expert, "zigzag", 20, 1000 * seed).mean_goal_ratio)
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    evaluate_often(1)  # plans and imports are kept
    tracemalloc.start()
    try:
        result = evaluate(expert, "zigzag", 20)
        size = tracemalloc.get_traced_memory()[0]
        del result
        before = evaluate_often(1)
        tracemalloc.reset_peak()
        evaluate_often(1)
        peak_of_one = tracemalloc.get_traced_memory()[1]
        after = evaluate_often(6)
        peak_of_many = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert after - before < size  # less than one of seven
    assert peak_of_many - peak_of_one < size


@pytest.mark.parametrize("name", [*PAPER_TASKS, "Pendulum-v1", "Reach-v0"])
def test_only_the_endings_remain_of_episodes_that_are_not_kept(name, monkeypatch):
    monkeypatch.setitem(gym.registry, "Reach-v0", EnvSpec("Reach-v0", entry_point=Reach, max_episode_steps=9))
    policy = AStarExpert(name) if name in PAPER_TASKS else Constant([0.25])
    task = dataclasses.replace(find_task(name), rows=3)  # five episodes are two waves
    for limit in (30, None):
        whole, short = (evaluate(policy, task, 5, 8, max_steps=limit, keep_episodes=keep) for keep in (True, False))
        assert short.episodes == () and short.endings == whole.endings and repr(short) == repr(whole)
        for ending, episode in zip(short.endings, whole.episodes, strict=True):
            made = Ending.of(episode)
            assert ending == made._replace(returns=ending.returns)
            assert ending.returns == pytest.approx(made.returns, rel=1e-12)
    with pytest.raises(ValueError, match="not kept" if name in PAPER_TASKS else "not filmed"):
        short.frames()
    with pytest.raises(ValueError, match="not kept"):
        short.plot()
    assert short._repr_html_() == f"<pre>{short!r}</pre>"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_episodes_that_are_not_kept_must_be_of_numbers_too(wrong):
    gym.register(
        "Broken-v0", entry_point=lambda: gym.wrappers.TransformReward(gym.make("Pendulum-v1"), lambda _: wrong)
    )
    try:
        for keep in (True, False):
            with pytest.raises(ValueError, match="rewards have a NaN or infinite number"):
                evaluate(Constant([0.0]), "Broken-v0", 2, max_steps=3, keep_episodes=keep)
    finally:
        del gym.registry["Broken-v0"]


def test_memory_does_not_grow_with_episodes_that_are_not_kept():
    """But for the few numbers of each, and the rows of the environment, of which there are at most 1,024."""

    def peak(episodes, steps, keep):
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        evaluate(Constant([0.3, 0.2]), "maze", episodes, max_steps=steps, keep_episodes=keep)
        return tracemalloc.get_traced_memory()[1] - before

    peak_of_kept = 3000 * 20 * 4 * find_task("maze").make().observation_space.shape[0]  # their states alone
    tracemalloc.start()
    try:
        few, longer, many = (peak(*size, keep=False) for size in ((1000, 2), (1000, 20), (3000, 20)))
        kept = peak(3000, 20, keep=True)
    finally:
        tracemalloc.stop()
    assert longer - few < 100_000  # a column of 1,000 rows and 18 steps would take more
    assert many - longer < 3000 * 400
    assert kept > peak_of_kept > many - few


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="episodes is 0"):
        evaluate(Constant([0, 0]), "maze", episodes=0)
    with pytest.raises(ValueError, match="there is no task 'labyrinth'"):
        evaluate(Constant([0, 0]), "labyrinth")
    with pytest.raises(ValueError, match="seed is -1"):
        evaluate(Constant([0, 0]), "maze", seed=-1)
    with pytest.raises(ValueError, match="did you mean 'maze'"):
        evaluate(Constant([0, 0]), "mazze")
    with pytest.raises(ValueError, match="maze has no argument 'noise'"):
        evaluate(Constant([0, 0]), "maze", noise=0.1)


@pytest.mark.parametrize("name", ["far:Far-v0", "..:x", ":", "a:b:c"])
def test_no_name_of_a_task_imports_a_module(name, tmp_path, monkeypatch):
    """In gym.make, `module:id` does; names come from files, too."""
    (tmp_path / "far.py").write_text("import gymnasium\ngymnasium.register('Far-v0', entry_point='far:none')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match="names a module to import"):
        task_name(name)
    with pytest.raises(ValueError, match="there is no task"):
        evaluate(Constant([0, 0]), name)
    assert "far" not in sys.modules


def test_the_command_line_imports_the_module_of_a_task_and_its_file_names_the_id_alone(tmp_path, monkeypatch, capsys):
    pendulum = "'gymnasium.envs.classic_control:PendulumEnv', max_episode_steps=5"
    (tmp_path / "near.py").write_text(f"import gymnasium\ngymnasium.register('Near-v0', {pendulum})\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    main(["collect", "--task", "near:Near-v0", "--expert", "random", "--episodes", "2", "--out", "near.npz"])
    assert load_demos("near.npz").task == "Near-v0"
    gym.registry.pop("Near-v0")
    with pytest.raises(SystemExit) as stop:
        main(["collect", "--task=nobodys.module:Near-v0", "--expert", "random"])
    assert stop.value.code == 2 and "there is no module 'nobodys.module'" in capsys.readouterr().err


@pytest.mark.parametrize("value", [-1, 0, float("nan"), 1e308, 1e-320, 10**20])
def test_hostile_numbers_are_a_sentence_or_work(value):
    for arguments in ({"episodes": value}, {"seed": value}, {"max_steps": value}, {"film": value}):
        try:
            evaluate(Constant([0, 0]), "maze", **{"episodes": 1, "max_steps": 2, **arguments})
        except ValueError as error:
            assert "an integer from" in str(error)


def test_results_are_worth_printing():
    result = evaluate(AStarExpert("zigzag"), "zigzag", episodes=2)
    assert repr(result) == "EvalResult(zigzag, 2 episodes, goal ratio 1.000 (1.000 to 1.000), success 1.00)"
    assert "2 episodes" in repr(collect(AStarExpert("zigzag"), "zigzag", 2)) and "seed 1000000" in repr(
        result.episodes[0]
    )
