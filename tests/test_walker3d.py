"""The scripted walker and the demonstrations it makes, in the real engine."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pidm_nav import TASKS, collect, evaluate, load_demos, make_expert, save_demos
from pidm_nav.demos import DemoDataset
from pidm_nav.demos.experts.walker3d import Walker3D
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
@pytest.mark.parametrize("name", LEVELS)
def test_the_walker_nearly_always_succeeds(name: str) -> None:
    assert evaluate(Walker3D(name), name, episodes=20, obs_type="state").success_rate >= 0.95


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
    with pytest.raises(ValueError, match="the state is that of 2 rows, not of 1"):
        expert.predict(state, memory)
    with pytest.raises(ValueError, match="17 numbers"):
        expert.predict(state[:10])
