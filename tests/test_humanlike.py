"""The human-like player: seeded, successful, and like the people in the paper's recordings."""

from dataclasses import replace
from pathlib import Path
from runpy import run_path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import pidm_nav  # noqa: F401  registers the ids
from pidm_nav.demos import load_demos
from pidm_nav.demos.collect import collect
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.experts.humanlike import Habits, HumanLikePlayer
from pidm_nav.demos.experts.routes import TASTES, routes_for
from pidm_nav.tasks import PAPER_TASKS, Task
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.state import join_state

play_statistics = run_path(str(Path(__file__).parents[1] / "scripts" / "play_statistics.py"))["play_statistics"]

# The paper's people, 50 episodes a task: mean, standard deviation and extremes of the length, mean stick deflection,
# variance of actions within 60 px of a goal, and that variance in the same place, near goals and elsewhere.
PEOPLE = {
    "four-room": (116.42, 10.4, 103, 154, 1.069, 1.108, 0.516, 0.061),
    "zigzag": (80.18, 9.8, 66, 106, 1.092, 0.927, 0.345, 0.086),
    "maze": (195.70, 11.5, 176, 227, 1.044, 1.095, 0.414, 0.075),
    "multiroom": (259.22, 14.5, 241, 314, 1.040, 0.998, 0.517, 0.088),
}

every_task = pytest.mark.parametrize("task", PAPER_TASKS.values(), ids=PAPER_TASKS)


@every_task
@pytest.mark.parametrize("kind", ["astar", "human-like"])
def test_package_demonstrations(task: Task, kind: str) -> None:
    demos = load_demos(f"{task.name}/{kind}")
    assert len(demos) == 50
    assert demos.summary().success == 1.0
    assert demos.source["made_by"] == kind
    assert demos.source["env_kwargs"] == {}, "the defaults, so that a user's own recordings can be merged with them"


@every_task
def test_fresh_episodes_are_like_those_of_people(task: Task) -> None:
    demos = collect(HumanLikePlayer(task, seed=7), task, 64, seed=70_000, clip_noise=False)
    assert demos.summary().success == 1.0
    _assert_like_people(task, demos)


@every_task
def test_the_packaged_player_is_like_people(task: Task) -> None:
    _assert_like_people(task, collect(HumanLikePlayer(task), task, 50, clip_noise=False))


def _assert_like_people(task: Task, demos: Any) -> None:
    mean, std, shortest, longest, deflection, variance, spread_near, spread_far = PEOPLE[task.name]
    ours = play_statistics(demos)
    assert ours.mean_length == pytest.approx(mean, rel=0.05)
    assert 0.6 * std < ours.length_std < 1.5 * std
    assert ours.min_length == pytest.approx(shortest, rel=0.06)
    assert ours.max_length == pytest.approx(longest, rel=0.2)
    assert ours.deflection == pytest.approx(deflection, abs=0.03)
    assert ours.variance_near == pytest.approx(variance, rel=0.2)
    assert ours.local_variance_near == pytest.approx(spread_near, rel=0.3)
    assert ours.local_variance_far == pytest.approx(spread_far, abs=0.06)
    assert (
        ours.local_variance_near > 2.5 * ours.local_variance_far
    )  # it is around goals that a person is hard to predict


@every_task
def test_the_figures_above_are_the_recordings(task: Task, shared: Path) -> None:
    file = shared / "data" / "reference_demos" / f"{task.name.replace('-', '_')}_human.npz"
    people = play_statistics(load_demos(file))
    figures = (
        people.mean_length,
        people.length_std,
        people.min_length,
        people.max_length,
        people.deflection,
        people.variance_near,
        people.local_variance_near,
        people.local_variance_far,
    )
    assert figures == pytest.approx(PEOPLE[task.name], rel=0.01)


@every_task
def test_package_demonstrations_are_of_todays_players(task: Task) -> None:
    """If this fails, habits or routes have changed: run scripts/make_demos.py again."""
    for kind, policy in (("human-like", HumanLikePlayer(task)), ("astar", AStarExpert(task))):
        shipped = load_demos(f"{task.name}/{kind}")
        assert shipped.source["settings"] == policy.settings
        first = np.stack([episode.observations[0] for episode in shipped])
        actions, _ = policy.predict(first)
        assert np.allclose(actions, np.stack([episode.actions[0] for episode in shipped]), atol=1e-4)


def play(seed: int, rows: int, **arguments: Any) -> list[np.ndarray]:
    return [episode.actions for episode in collect(HumanLikePlayer("zigzag", seed), "zigzag", rows, **arguments)]


def test_seeded_and_independent_of_the_batch() -> None:
    few, many = play(0, 3), play(0, 6)
    for alone, among_others in zip(few, many[:3], strict=True):
        assert np.array_equal(alone, among_others)
    assert not np.array_equal(play(1, 1)[0], few[0])
    assert len({actions.tobytes() for actions in many}) == 6


def test_episodes_differ_without_noise_too() -> None:
    demos = collect(HumanLikePlayer("four-room"), "four-room", 10, noise_std=0.0)
    assert demos.summary().success == 1.0
    assert len({len(episode) for episode in demos}) > 3


def test_memory_follows_episode_starts() -> None:
    """Rows that begin again get new chance; the same row begun at the same point plays the same."""
    player = HumanLikePlayer("maze", seed=3)
    layout = PAPER_TASKS["maze"].layout()
    observations = np.stack([join_state(layout.starts[0], layout.goals, np.asarray(0))] * 3)
    first, memory = player.predict(observations)
    assert first.shape == (3, 2)
    assert len(np.unique(first, axis=0)) == 3
    for _ in range(3):
        _, memory = player.predict(observations, memory, np.zeros(3, bool))
    again, memory = player.predict(observations, memory, np.array([True, False, False]))
    assert not np.allclose(again[0], first[0])
    fresh, _ = player.predict(observations)
    assert np.array_equal(fresh, first)
    with pytest.raises(ValueError, match="the state has 3 rows, and the observation 2"):
        player.predict(observations[:2], memory)


def test_one_observation_at_a_time() -> None:
    env = gym.make("PIDMNav-Zigzag-v0", clip_noise=False)
    observation, info = env.reset(seed=0)
    player, memory, start = HumanLikePlayer(env), None, True
    ended = False
    while not ended:
        action, memory = player.predict(observation, memory, start)
        assert action.shape == (2,)
        assert action.dtype == np.float32
        start = False
        observation, _, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
    assert info["is_success"]


def test_autoreset_rows_play_on() -> None:
    env = gym.make_vec("PIDMNav-Zigzag-v0", num_envs=4, autoreset_mode=AutoresetMode.SAME_STEP)
    observation, _ = env.reset(seed=0)
    player, memory, begins = HumanLikePlayer(env), None, np.ones(4, bool)
    successes = 0
    for _ in range(250):
        action, memory = player.predict(observation, memory, begins)
        observation, _, terminated, truncated, _ = env.step(action)
        begins = terminated | truncated
        successes += int(terminated.sum())
    assert successes >= 8


def test_habits_show() -> None:
    """A player with quick, exact hands is faster, and a rigid thumb changes the stick less."""
    sharp = replace(Habits(), reaction=0.0, lapse=0.0, aim_error=0.0, goal_error=0.0, wander=0.0, thumb=1.0)
    exact = play_statistics(collect(HumanLikePlayer("maze", habits=sharp), "maze", 20, clip_noise=False))
    usual = play_statistics(collect(HumanLikePlayer("maze"), "maze", 20, clip_noise=False))
    assert exact.mean_length < 0.95 * usual.mean_length
    assert exact.local_variance_near < usual.local_variance_near


@every_task
def test_routes_lead_round_walls_to_every_goal(task: Task) -> None:
    """Following what is looked at, in small steps and without a player's errors, ends at the goal."""
    layout = task.layout()
    routes, free = routes_for(layout), layout.free()
    for start, goal in zip([*layout.starts[:1], *layout.goals[:-1]], layout.goals, strict=True):
        places = np.repeat(start[None], len(TASTES), axis=0)
        for _ in range(400):
            aims = routes.look(places, np.repeat(goal[None], len(TASTES), axis=0))
            way = aims[np.arange(len(TASTES)), np.arange(len(TASTES))] - places
            places = places + way * np.minimum(1.0, 8.0 / np.maximum(np.linalg.norm(way, axis=1), 1e-9))[:, None]
            x, y = np.rint(places).astype(int).T
            assert all(free[max(a - 8, 0) : a + 9, max(b - 8, 0) : b + 9].any() for a, b in zip(x, y, strict=True))
        assert (np.abs(places - goal) < 1).all()


def test_random_goals_and_a_map_of_ones_own() -> None:
    arguments = {"random_start": True, "random_goals": True}
    demos = collect(HumanLikePlayer("four-room"), "four-room", 3, max_steps=400, **arguments)  # type: ignore[arg-type]
    assert demos.summary().success == 1.0
    narrow = "#########\n#...#...#\n#.A.#...#\n#.....1.#\n#...#...#\n#########\n"
    layout = Layout.parse(narrow, (225, 150))  # a door of 25 px: 5 pixels of freedom
    demos = collect(HumanLikePlayer(layout), "custom", 5, layout=narrow, room_size=[225, 150])
    assert demos.summary().success == 1.0


def test_other_observations_are_refused() -> None:
    with pytest.raises(ValueError, match="relative_goals"):
        HumanLikePlayer(gym.make("PIDMNav-Maze-v0", relative_goals=True))
    with pytest.raises(ValueError, match="seed is -1"):
        HumanLikePlayer("maze", seed=-1)
