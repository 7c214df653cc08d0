"""Environments with discrete actions: demonstrated, trained on and evaluated like all others."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from numpy.typing import NDArray

from pidm_nav import collect, collect_random_play, evaluate, load_agent, load_demos, save_demos, train
from pidm_nav.agents import AGENTS
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.replay import check_demos

SMALL: dict[str, Any] = {"steps": 300, "encoder_sizes": (64, 64), "head_sizes": (64,), "progress": False}


class Balancer:
    """Pushes the cart toward the side that the pole falls to."""

    def predict(
        self, observation: NDArray[Any], state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[NDArray[np.int64], Any]:
        x, speed, angle, turning = np.asarray(observation).T
        return (2 * angle + turning + 0.1 * speed + 0.05 * x > 0).astype(np.int64), state


@pytest.fixture(scope="module")
def balanced() -> DemoDataset:
    return collect(Balancer(), "CartPole-v1", 3, max_steps=200)


def test_choices_are_recorded_as_numbers_and_replayed(balanced: DemoDataset, tmp_path: Any) -> None:
    assert balanced.action_dim == 1 and set(np.unique(balanced[0].actions)) == {0.0, 1.0}
    save_demos(balanced, tmp_path / "cart.npz")
    again = load_demos(str(tmp_path / "cart.npz"))
    np.testing.assert_array_equal(again[0].actions, balanced[0].actions)
    assert not check_demos(again).mismatches


@pytest.mark.thorough
@pytest.mark.parametrize("agent", sorted(set(AGENTS) - {"diffusion", "delta-pidm"}))
def test_agents_learn_to_balance(balanced: DemoDataset, agent: str, tmp_path: Any) -> None:
    fewer = {"steps": 120} if agent.startswith("recurrent") else {}
    trained = train(agent, balanced, **{**SMALL, **fewer})
    result = evaluate(trained, "CartPole-v1", 5, max_steps=200)
    assert result.metric == "return" and result.success is None
    assert result.returns.mean() > 100  # a cart that is pushed at random falls after 22 steps
    observations = balanced[0].observations[:7]
    actions, _ = trained.predict(observations)
    assert actions.shape == (7,) and actions.dtype == np.int64
    assert np.shape(trained.predict(observations[0])[0]) == ()
    trained.save(tmp_path)
    np.testing.assert_array_equal(load_agent(tmp_path).predict(observations)[0], actions)


def test_random_play_teaches_which_choice_makes_which_change(balanced: DemoDataset) -> None:
    played = collect_random_play("CartPole-v1", 1000)
    agent: Any = train("delta-pidm", balanced.without_actions(), idm_data=played, **{**SMALL, "steps": 600})
    states, actions, futures, *_ = balanced.transitions()
    assert (agent.inverse_dynamics(states, futures) == actions).mean() > 0.9


def test_diffusion_says_that_it_needs_numbers(balanced: DemoDataset) -> None:
    with pytest.raises(ValueError, match=r"diffusion needs continuous actions, not Discrete\(2\): train bc or"):
        train("diffusion", balanced, **SMALL)


def test_a_choice_outside_the_space_is_refused() -> None:
    class Confused(Balancer):
        def predict(self, observation: Any, *rest: Any, **more: Any) -> tuple[NDArray[np.int64], Any]:
            return np.full(len(observation), 2), None

    with pytest.raises(ValueError, match=r"Confused.predict returned \[2, 2\]: return actions of Discrete\(2\)"):
        evaluate(Confused(), "CartPole-v1", 2)


def test_minigrid_with_flat_observations() -> None:
    pytest.importorskip("minigrid", reason="pip install --no-deps minigrid (it asks for pygame, which pygame-ce is)")
    from minigrid.wrappers import FlatObsWrapper

    def make(**arguments: Any) -> gym.Env[Any, Any]:
        return FlatObsWrapper(gym.make("MiniGrid-Empty-5x5-v0", **arguments))

    gym.register("FlatMiniGrid-v0", make, max_episode_steps=30)

    class Turner:
        """Walks two steps, turns right, and walks two steps: to the goal in the corner."""

        def predict(
            self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
        ) -> tuple[NDArray[np.int64], Any]:
            step = 0 if state is None else state
            return np.full(len(observation), (2, 2, 1, 2, 2)[step % 5]), step + 1

    demos = collect(Turner(), "FlatMiniGrid-v0", 2)
    assert [len(episode) for episode in demos] == [5, 5] and demos[0].terminated
    for name in ("bc", "pidm"):
        result = evaluate(train(name, demos, **{**SMALL, "steps": 150}), "FlatMiniGrid-v0", 2)
        np.testing.assert_allclose(result.returns, [episode.rewards.sum() for episode in demos], rtol=1e-5)
