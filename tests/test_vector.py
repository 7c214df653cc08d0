"""Many environments at once: each row is the single environment of its seed."""

import copy
import pickle

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.vector import AutoresetMode

from pidm_nav import NavVectorEnv
from pidm_nav.tasks import PAPER_TASKS

IDS = [task.env_id for task in PAPER_TASKS.values()]
ROWS = 5
INFO_KEYS = ["goals_reached", "num_goals", "goal_ratio", "is_success", "reached_goal"]
# Three goals in a row that a rightward walk reaches, so that episodes terminate as well as get truncated.
LANE = {"layout": "............\n.A.1.2..3...\n............\n", "room_size": [600, 150]}


def cases():
    for env_id in IDS:
        yield env_id, {}
    yield "PIDMNav-Maze-v0", {"random_start": True, "random_goals": True, "clip_noise": False}
    yield "PIDMNav-Zigzag-v0", {"relative_goals": True, "noise_std": 0.4}
    yield "PIDMNav-Custom-v0", LANE
    yield "PIDMNav-FourRoom-v0", {"obs_type": "pixels", "image_size": 32}


def both(env_id, arguments, mode, limit):
    """Our vector environment, and Gymnasium's loop over single ones as the judge."""
    ours = gym.make_vec(env_id, num_envs=ROWS, max_episode_steps=limit, autoreset_mode=mode, **arguments)
    assert isinstance(ours.unwrapped, NavVectorEnv)
    judge = gym.make_vec(
        env_id,
        num_envs=ROWS,
        vectorization_mode="sync",
        vector_kwargs={"autoreset_mode": mode},
        max_episode_steps=limit,
        **arguments,
    )
    return ours, judge


def assert_same_infos(ours, judge):
    for key in INFO_KEYS:
        np.testing.assert_array_equal(ours[f"_{key}"], judge[f"_{key}"])
        np.testing.assert_array_equal(ours[key][ours[f"_{key}"]], judge[key][judge[f"_{key}"]])


@pytest.mark.parametrize("mode", list(AutoresetMode), ids=lambda mode: mode.name)
@pytest.mark.parametrize(("env_id", "arguments"), list(cases()), ids=str)
def test_rows_equal_single_environments_step_by_step(env_id, arguments, mode):
    steps, limit = (60, 23) if arguments.get("obs_type") == "pixels" else (560, 90)  # beyond two blocks of noise
    ours, judge = both(env_id, arguments, mode, limit)
    rng = np.random.default_rng(0)
    observation, infos = ours.reset(seed=11)
    expected, expected_infos = judge.reset(seed=11)
    np.testing.assert_array_equal(observation, expected)
    assert_same_infos(infos, expected_infos)
    ends = 0
    for _ in range(steps):
        actions = np.clip(rng.normal([0.7, 0.0], 0.5, (ROWS, 2)), -1, 1).astype(np.float32)
        observation, rewards, terminated, truncated, infos = ours.step(actions)
        expected = judge.step(actions)
        for value, judged in zip((observation, rewards, terminated, truncated), expected[:4], strict=True):
            np.testing.assert_array_equal(value, judged)
        assert_same_infos(infos, expected[4])
        ended = terminated | truncated
        ends += ended.sum()
        if mode == AutoresetMode.SAME_STEP:
            assert ("final_obs" in infos) == ended.any()
            if ended.any():
                np.testing.assert_array_equal(infos["_final_obs"], ended)
                for row in np.flatnonzero(ended):
                    np.testing.assert_array_equal(infos["final_obs"][row], expected[4]["final_obs"][row])
                assert_same_infos(infos["final_info"], expected[4]["final_info"])
        if mode == AutoresetMode.DISABLED and ended.any():
            after, _ = ours.reset(options={"reset_mask": ended})
            judged, _ = judge.reset(options={"reset_mask": ended})
            np.testing.assert_array_equal(after, judged)
    assert ends > ROWS


@pytest.mark.parametrize("limit", [64, 128, 256])
def test_an_episode_may_end_with_its_block_of_noise(limit):
    """A new episode draws where it begins before it draws noise, in both."""
    ours, judge = both("PIDMNav-Maze-v0", {"random_start": True}, AutoresetMode.NEXT_STEP, limit)
    ours.reset(seed=1)
    judge.reset(seed=1)
    for _ in range(600):
        actions = np.zeros((ROWS, 2), np.float32)
        np.testing.assert_array_equal(ours.step(actions)[0], judge.step(actions)[0])


def test_generators_and_seeds_are_those_of_the_rows():
    ours, judge = both("PIDMNav-Maze-v0", {"random_start": True}, AutoresetMode.NEXT_STEP, 30)
    assert len(ours.np_random) == len(set(ours.np_random_seed)) == ROWS, "rows have generators before the first reset"
    with pytest.raises(ResetNeeded, match=r"call reset\(\) first"):
        ours.step(np.zeros((ROWS, 2)))
    mask = np.arange(ROWS) == 1
    for arguments in ({"seed": 42}, {}, {"seed": [7, None, 8, None, 9]}, {"seed": 3, "options": {"reset_mask": mask}}):
        for envs in (ours, judge):
            envs.reset(**copy.deepcopy(arguments))
            for _ in range(40):
                envs.step(np.ones((ROWS, 2), np.float32))
        assert ours.np_random_seed == judge.np_random_seed
        states = [[rng.bit_generator.state for rng in envs.np_random] for envs in (ours, judge)]
        assert states[0] == states[1]
    for envs in (ours, judge):
        with pytest.raises(AttributeError):
            envs.np_random = np.random.default_rng()


@pytest.mark.parametrize("actions", [0, None, 1.0, [0.5], [[0.0, 0.0]], np.zeros((ROWS, 3)), np.zeros((ROWS + 1, 2))])
@pytest.mark.skipif(gym.__version__.startswith("1.1."), reason="Gymnasium 1.1's own does not check the rows of actions")
def test_wrong_actions_are_the_errors_of_gymnasium_s_own_vector_environment(actions):
    kinds = []
    for envs in both("PIDMNav-Maze-v0", {}, AutoresetMode.NEXT_STEP, None):
        envs.reset(seed=0)
        with pytest.raises((TypeError, ValueError)) as caught:
            envs.step(actions)
        kinds.append(caught.type)
    assert kinds[0] is kinds[1]


@pytest.mark.parametrize(
    "clone", [copy.deepcopy, lambda envs: pickle.loads(pickle.dumps(envs))], ids=["copy", "pickle"]
)
@pytest.mark.parametrize("arguments", [{}, {"obs_type": "pixels", "image_size": 32}], ids=str)
def test_a_copy_goes_on_with_the_running_episodes(clone, arguments):
    envs = gym.make_vec("PIDMNav-Maze-v0", num_envs=3, random_start=True, max_episode_steps=30, **arguments)
    clone(envs).reset(seed=0)
    envs.reset(seed=0)
    actions = np.random.default_rng(0).uniform(-1, 1, (50, 3, 2)).astype(np.float32)
    for action in actions[:20]:
        envs.step(action)
    twin = clone(envs)
    for action in actions[20:]:
        for ours, theirs in zip(envs.step(action)[:4], twin.step(action)[:4], strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_an_ended_row_waits_when_autoreset_is_disabled():
    envs = gym.make_vec("PIDMNav-Custom-v0", num_envs=2, autoreset_mode=AutoresetMode.DISABLED, noise_std=0.0, **LANE)
    envs.reset(seed=0)
    for _ in range(60):
        observation, rewards, terminated, _, infos = envs.step(np.array([[1.0, 0.0], [0.0, 0.0]], np.float32))
    assert terminated.tolist() == [True, False]
    assert infos["is_success"].tolist() == [True, False]
    assert rewards.tolist() == [0.0, 0.0]
    resting = observation[0].copy()
    observation, *_ = envs.step(np.array([[-1.0, 0.0], [0.0, 0.0]], np.float32))
    np.testing.assert_array_equal(observation[0], resting)


@pytest.mark.parametrize("env_id", IDS)
def test_make_vec_is_ours_with_its_limit_and_spaces(env_id):
    envs = gym.make_vec(env_id, num_envs=3)
    assert isinstance(envs.unwrapped, NavVectorEnv)
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert envs.max_episode_steps == gym.spec(env_id).max_episode_steps
    assert envs.single_observation_space == gym.make(env_id).observation_space
    observations, _ = envs.reset(seed=0)
    assert envs.observation_space.contains(observations)
    assert envs.action_space.shape == (3, 2)


def test_a_single_row():
    envs = gym.make_vec("PIDMNav-Maze-v0", num_envs=1)
    observations, _ = envs.reset(seed=0)
    assert observations.shape == (1, 32)
    assert envs.step(envs.action_space.sample())[0].shape == (1, 32)


def test_thousands_at_once_stay_in_their_space():
    envs = gym.make_vec("PIDMNav-Zigzag-v0", num_envs=4096, clip_noise=False)
    observations, _ = envs.reset(seed=0)
    envs.action_space.seed(0)
    for _ in range(320):
        observations, *_ = envs.step(envs.action_space.sample())
        assert envs.observation_space.contains(observations)
    assert len(np.unique(observations[:, 0])) > 3000, "rows have their own noise"


def test_returned_arrays_are_the_caller_s():
    envs = gym.make_vec("PIDMNav-Maze-v0", num_envs=4)
    envs.reset(seed=0)
    first = envs.step(np.zeros((4, 2), np.float32))
    kept = [np.copy(value) for value in first[:4]]
    first[0][:] = 0
    second = envs.step(np.ones((4, 2), np.float32))
    assert (second[0][:, 2:4] == kept[0][:, 2:4]).all()
    for value, before in zip(first[1:4], kept[1:4], strict=True):
        np.testing.assert_array_equal(value, before)


def test_states_of_all_rows():
    envs = gym.make_vec("PIDMNav-FourRoom-v0", num_envs=3).unwrapped
    envs.reset(seed=0)
    for _ in range(40):
        envs.step(np.tile(np.array([-0.5, -0.5], np.float32), (3, 1)))
    states = envs.get_state()
    assert states[:, 4].any(), "a goal is reached on the way"
    observation, infos = envs.reset(seed=9, options={"state": states})
    np.testing.assert_array_equal(observation, states)
    np.testing.assert_array_equal(infos["goals_reached"], states[:, 4::3].sum(axis=1))
    envs.reset(seed=3)
    envs.set_state(states)
    np.testing.assert_array_equal(envs.get_state(), states)
    everywhere, _ = envs.reset(options={"state": states[0]})
    np.testing.assert_array_equal(everywhere, np.tile(states[0], (3, 1)))


def test_what_cannot_be_is_refused():
    envs = gym.make_vec("PIDMNav-Maze-v0", num_envs=3).unwrapped
    with pytest.raises(ResetNeeded, match=r"call reset\(\) first"):
        envs.step(np.zeros((3, 2)))
    envs.reset(seed=0)
    with pytest.raises(ValueError, match=r"shape \(2, 2\): they must be \(3, 2\)"):
        envs.step(np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"row 1 is \[nan, 0\.0\]"):
        envs.step(np.array([[0.0, 0.0], [np.nan, 0.0], [0.0, 0.0]]))
    with pytest.raises(ValueError, match="2 seeds for 3 rows"):
        envs.reset(seed=[1, 2])
    before = [str(rng.bit_generator.state) for rng in envs.np_random]
    with pytest.raises(gym.error.Error):
        envs.reset(seed=[1, 2, -3])
    assert [str(rng.bit_generator.state) for rng in envs.np_random] == before
    with pytest.raises(ValueError, match="reset_mask must be"):
        envs.reset(options={"reset_mask": np.zeros(3, bool)})
    fresh = NavVectorEnv(3, task="zigzag")
    with pytest.raises(gym.error.ResetNeeded, match="begins all rows: call it once without reset_mask"):
        fresh.reset(seed=0, options={"reset_mask": np.array([True, False, False])})
    with pytest.raises(ValueError, match="num_envs is 0"):
        NavVectorEnv(num_envs=0, task="maze")
    with pytest.raises(ValueError, match=r"num_envs is 1000000: .* to 262,144"):
        NavVectorEnv(num_envs=1_000_000, task="maze")
    with pytest.raises(ValueError, match="make fewer of them, or smaller images"):
        NavVectorEnv(num_envs=16384, task="maze", obs_type="pixels", image_size=512)
    with pytest.raises(ValueError, match="render_mode is 'human'"):
        NavVectorEnv(num_envs=1, task="maze", render_mode="human")
    envs.step(np.array([[np.inf, -np.inf], [0.0, 0.0], [5.0, -5.0]]))


def test_seeds_by_list_and_going_on_without_one():
    envs = gym.make_vec("PIDMNav-Maze-v0", num_envs=2, random_start=True)
    by_list, _ = envs.reset(seed=[4, 5])
    by_number, _ = envs.reset(seed=4)
    np.testing.assert_array_equal(by_list, by_number)
    later, _ = envs.reset()
    assert not np.array_equal(by_number, later)


def test_torchrl_takes_our_vector_environment():
    """It refuses NEXT_STEP, so this is the SAME_STEP mode's outside judge."""
    torchrl_envs = pytest.importorskip("torchrl.envs")
    envs = gym.make_vec("PIDMNav-Maze-v0", num_envs=4, autoreset_mode=AutoresetMode.SAME_STEP)
    rollout = torchrl_envs.GymWrapper(envs).rollout(310, break_when_any_done=False)
    assert rollout.batch_size == (4, 310)
    assert int(rollout["next", "done"].sum()) >= 4


def test_rendering_gives_one_frame_per_row():
    envs = gym.make_vec("PIDMNav-Maze-v0", num_envs=2, render_mode="rgb_array")
    envs.reset(seed=0)
    frames = envs.render()
    assert len(frames) == 2
    assert frames[0].dtype == np.uint8


@pytest.mark.slow
@pytest.mark.parametrize("env_id", IDS)
def test_a_million_steps(env_id):
    """Every observation within its space, every reward one goal, goals never lost."""
    envs = gym.make_vec(env_id, num_envs=1000)
    envs.action_space.seed(1)
    observations, infos = envs.reset(seed=1)
    goals_reached = infos["goals_reached"]
    ended = np.zeros(1000, bool)
    for _ in range(1000):
        observations, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
        assert envs.observation_space.contains(observations)
        expected = np.where(ended, 0, goals_reached + rewards)
        np.testing.assert_array_equal(infos["goals_reached"], expected)
        np.testing.assert_array_equal(observations[:, 4::3].sum(axis=1), infos["goals_reached"])
        goals_reached, ended = infos["goals_reached"], terminated | truncated
