"""Goal-conditioned observations, and hindsight experience replay on them."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from pidm_nav import PAPER_TASKS, AStarExpert, GoalObservation

MAP = "########\n#......#\n#.A.1.2#\n########\n"


def goal_env(env_id="PIDMNav-Zigzag-v0", **kwargs):
    return GoalObservation(gym.make(env_id, **kwargs))


@pytest.mark.parametrize("task", PAPER_TASKS.values(), ids=lambda task: task.name)
@pytest.mark.parametrize("kwargs", [{}, {"observe_goals": False}, {"random_start": True, "random_goals": True}])
def test_gymnasiums_checker_passes(task, kwargs, recwarn):
    check_env(goal_env(task.env_id, disable_env_checker=True, **kwargs), skip_render_check=True)
    assert [str(each.message) for each in recwarn if "different from the unwrapped" not in str(each.message)] == []


def test_sb3s_checker_passes():
    from stable_baselines3.common.env_checker import check_env

    check_env(goal_env())


@pytest.mark.parametrize("kwargs", [{}, {"random_goals": True}, {"relative_goals": True, "noise_std": 0.5}])
def test_rewards_are_those_of_the_goal_before_the_step(kwargs):
    env, expert = goal_env(max_episode_steps=1000, **kwargs), AStarExpert("zigzag")
    seen, _ = env.reset(seed=3)
    befores, afters, rewards, ended = [], [], [], False
    while not ended:
        action, _ = expert.predict(env.unwrapped.get_state())
        after, reward, terminated, truncated, info = env.step(action)
        assert env.observation_space.contains(after)
        assert reward == env.compute_reward(after["achieved_goal"], seen["desired_goal"], info)
        assert np.array_equal(after["desired_goal"], seen["desired_goal"]) == (not reward or terminated)
        befores.append(seen["desired_goal"])
        afters.append(after["achieved_goal"])
        rewards.append(reward)
        seen, ended = after, terminated or truncated
    assert sum(rewards) == 6 and info["is_success"]
    assert np.array_equal(env.compute_reward(np.array(afters), np.array(befores), [{}] * len(rewards)), rewards)


def test_relabeling_with_the_achieved_goal_succeeds_everywhere():
    """Also where positions are halves of pixels, which are rounded to even ones."""
    env = goal_env()
    places = np.random.default_rng(0).uniform(20, 700, (1000, 2)).round(1).astype(np.float32)
    places = np.concatenate([places, np.arange(100, 110, 0.5, np.float32).repeat(2).reshape(-1, 2)])
    assert env.compute_reward(places, places, {}).all()
    assert not env.compute_reward(places, places + np.float32(40), {}).any()


def test_ordered_goals_follow_each_other():
    env = goal_env("PIDMNav-Custom-v0", layout=MAP, room_size=(800, 400), noise_std=0.0, observe_goals=False)
    seen, _ = env.reset(seed=0)
    first, second = env.unwrapped.layout.goals
    desired = [seen["desired_goal"]]
    assert np.array_equal(seen["observation"], seen["achieved_goal"])
    ended = False
    while not ended:
        seen, reward, ended, _, _ = env.step(np.array([1, 0], np.float32))
        desired += [seen["desired_goal"]] if reward else []
    assert np.array_equal(desired, [first, second, second])


def test_the_spec_holds_the_wrapper():
    spec = goal_env(noise_std=0.1).spec
    assert spec is not None
    again = gym.make(gym.envs.registration.EnvSpec.from_json(spec.to_json()))
    assert isinstance(again.observation_space, gym.spaces.Dict)
    assert again.unwrapped.world.noise_std == 0.1


def test_other_environments_are_refused():
    with pytest.raises(ValueError, match=r"cannot wrap .*Pendulum.*: wrap a 2D task"):
        GoalObservation(gym.make("Pendulum-v1"))


def test_her_of_stable_baselines3_learns():
    from stable_baselines3 import SAC, HerReplayBuffer
    from stable_baselines3.common.env_util import make_vec_env

    arguments = {"observe_goals": False, "random_start": True, "max_episode_steps": 20}
    env = make_vec_env("PIDMNav-FourRoom-v0", 2, 0, env_kwargs=arguments, wrapper_class=GoalObservation)
    model = SAC(
        "MultiInputPolicy",
        env,
        replay_buffer_class=HerReplayBuffer,
        learning_starts=60,
        seed=0,
        policy_kwargs={"net_arch": [32]},
    )
    model.learn(120)
    batch = model.replay_buffer.sample(200)
    reached = model.replay_buffer.env.env_method(
        "compute_reward",
        batch.next_observations["achieved_goal"].numpy(),
        batch.observations["desired_goal"].numpy(),
        [{}] * 200,
        indices=[0],
    )[0]
    assert np.array_equal(batch.rewards.numpy()[:, 0], reached) and reached.mean() > 0.2
