"""The scripted walker and the demonstrations it makes, in the real engine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pidm_nav import TASKS, collect, evaluate, load_demos, make_expert, save_demos
from pidm_nav.demos import DemoDataset
from pidm_nav.demos.experts.walker3d import Habits3D, Walker3D
from pidm_nav.world3d.levels import LEVELS, load_level

pytest.importorskip("vizdoom", reason="the extra 3d is not installed")


def demonstrate(task: str, episodes: int = 1, seed: int = 0, **arguments: Any) -> DemoDataset:
    return collect(make_expert(None, task, seed=seed), task, episodes, seed, **arguments)


@pytest.mark.parametrize("name", ["zigzag-3d", "tour-3d"])
def test_the_walker_passes_every_milestone(name: str) -> None:
    (episode,) = demonstrate(name, obs_type="state")
    level = load_level(name)
    assert episode.success and len(episode) < 0.8 * TASKS[name].max_steps
    assert episode.rewards.sum() == level.num_goals
    np.testing.assert_array_equal(np.diff(episode.infos["goals_reached"]), episode.rewards)
    assert (np.abs(episode.actions).max(axis=0) > 0.1).all() or name != "tour-3d"  # the tour needs all four axes


@pytest.mark.slow
@pytest.mark.parametrize("varied", [False, True])
@pytest.mark.parametrize("name", LEVELS)
def test_the_walker_nearly_always_succeeds(name: str, varied: bool) -> None:
    walker = Walker3D(name, varied=varied)
    assert evaluate(walker, name, episodes=20, obs_type="state").success_rate >= 0.9 + 0.05 * (not varied)


def test_a_varied_walker_is_another_person_in_each_episode() -> None:
    walker = Walker3D("zigzag-3d", seed=3, varied=True)
    state = np.zeros(walker.state_size, np.float32)
    state[:2], state[3] = load_level("zigzag-3d").start, 1.0
    _, people = walker.predict(np.stack([state] * 20))
    for habit in ("speed", "quickness", "lane", "reaction", "glance"):
        assert len({getattr(person.habits, habit) for person in people}) > 3, habit
    _, again = walker.predict(np.stack([state] * 20))
    assert [person.habits for person in again] == [person.habits for person in people]
    assert walker.settings == {"expert": "scripted", "varied": True}
    with pytest.raises(ValueError, match="leave one of them out"):
        Walker3D("zigzag-3d", habits=Habits3D(), varied=True)


def test_habits_show_in_what_the_walker_does() -> None:
    state = np.zeros(12, np.float32)
    state[:2], state[3] = load_level("zigzag-3d").start, 1.0
    lowered = state.copy()
    lowered[5] = -20.0
    looked = {}
    for reaction in (0, 2):
        walker = Walker3D("zigzag-3d", habits=Habits3D(reaction=reaction, hesitation=0.0, tremor=0.0))
        _, memory = walker.predict(state)
        for step in range(3):
            action, memory = walker.predict(lowered, memory, np.array([False]))
            looked[reaction, step] = action[3]
    assert looked[0, 0] > 0.2 and looked[2, 1] < 0.2 < looked[2, 2]  # seen at once, or two steps later
    ways = [Walker3D("zigzag-3d", habits=Habits3D(lane=lane, hesitation=0.0)).predict(state)[0] for lane in (-40, 40)]
    assert ways[0][2] > ways[1][2]  # who keeps to the right turns further to the right


def test_a_varied_walker_passes_every_milestone() -> None:
    walker = make_expert("scripted", "zigzag-3d", seed=0, varied=True)
    (episode,) = collect(walker, "zigzag-3d", 1, 0, obs_type="state")
    assert episode.success


def test_demonstrations_depend_on_their_seed_alone_and_keep_the_pictures(tmp_path: Path) -> None:
    both = demonstrate("zigzag-3d", episodes=2, seed=4, max_steps=25, image_size=48)
    alone = demonstrate("PIDMNav3D-Zigzag-v0", episodes=1, seed=5, max_steps=25, image_size=48)
    assert both.task == "zigzag-3d" and both.env_kwargs == {"image_size": 48}
    assert both[0].observations.shape == (26, 36, 48, 3) and both[0].observations.dtype == np.uint8
    np.testing.assert_array_equal(both[1].observations, alone[0].observations)
    np.testing.assert_array_equal(both[1].actions, alone[0].actions)
    assert (both[0].actions != both[1].actions).any()
    save_demos(both, tmp_path / "demos.npz")
    loaded = load_demos(tmp_path / "demos.npz")
    for kept, made in zip(loaded, both, strict=True):
        np.testing.assert_array_equal(kept.observations, made.observations)
        np.testing.assert_array_equal(kept.infos["states"], made.infos["states"])


def test_replaying_the_actions_gives_the_same_episode() -> None:
    class Replay:
        def __init__(self, actions: np.ndarray) -> None:
            self.actions = iter(actions)

        def predict(self, observation, state=None, episode_start=None, deterministic=True):  # type: ignore
            return next(self.actions)[None], None

    (episode,) = demonstrate("tour-3d", seed=2, max_steps=25)
    (again,) = collect(Replay(episode.actions), "tour-3d", 1, seed=2, max_steps=25)
    np.testing.assert_array_equal(again.observations, episode.observations)
    np.testing.assert_array_equal(again.infos["states"], episode.infos["states"])


def test_rows_and_episodes_have_a_chance_of_their_own() -> None:
    expert = Walker3D("tour-3d", seed=1)
    state = np.zeros(17, np.float32)
    state[:2], state[3] = load_level("tour-3d").start, 1.0
    both, memory = expert.predict(np.stack([state, state]))
    assert both.shape == (2, 4) and (both[0] != both[1]).any()
    single, _ = expert.predict(state)
    np.testing.assert_array_equal(single, both[0])
    again, _ = expert.predict(np.stack([state, state]), memory, np.array([True, False]))
    assert (again[0] != both[0]).any()
    with pytest.raises(ValueError, match="the state has 2 rows, and the observation 1"):
        expert.predict(state, memory)
    with pytest.raises(ValueError, match="17 features"):
        expert.predict(state[:10])
