"""The A* expert: its tables agree with a search, it reaches everything, and it is as fast as the paper's."""

import heapq
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

import pidm_nav  # noqa: F401  registers the ids
from pidm_nav.demos.experts.astar import FAR, AStarExpert, compass, planner_for
from pidm_nav.tasks import PAPER_TASKS, Task
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.state import REACHED, join_state

PAPER_ASTAR = {"four-room": 122.96, "zigzag": 76.40, "maze": 195.54, "multiroom": 262.92}
PAPER_HUMAN = {"four-room": 116.42, "zigzag": 80.18, "maze": 195.70, "multiroom": 259.22}

every_task = pytest.mark.parametrize("task", PAPER_TASKS.values(), ids=PAPER_TASKS)


def random_states(layout: Layout, count: int, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    places = np.argwhere(layout.reachable())
    positions = places[rng.integers(len(places), size=count)] + rng.uniform(-0.4, 0.4, (count, 2)).round(3)
    goals = np.broadcast_to(layout.goals, (count, layout.num_goals, 2))
    return join_state(positions, goals, rng.integers(layout.num_goals, size=count))


def episode_lengths(
    expert: AStarExpert, env_id: str, episodes: int, seed: int = 0, limit: int = 500, **arguments: Any
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    env = gym.make_vec(
        env_id,
        num_envs=episodes,
        autoreset_mode=AutoresetMode.DISABLED,
        **arguments,
    )
    observations, _ = env.reset(seed=seed)
    lengths, running = np.zeros(episodes, np.int64), np.ones(episodes, bool)
    terminated = np.zeros(episodes, bool)
    for _ in range(limit):
        lengths += running
        observations, _, terminated, truncated, _ = env.step(expert.predict(observations)[0])
        running &= ~(terminated | truncated)
        if not running.any():
            break
    return lengths, terminated


def searched_cost(layout: Layout, start: Any, goal: Any, step: int, directions: int) -> int:
    """The steps of the shortest path by an A* search; the heuristic is the larger of both distances, in steps."""
    free, room, moves = layout.free(), layout.room_size, compass(step, directions).tolist()

    def remaining(x: int, y: int) -> int:
        return max(-(-(max(abs(x - goal[0]), abs(y - goal[1])) - 19) // step), 0)

    cost = {start: 0}
    queue = [(remaining(*start), 0, start)]
    while queue:
        _, minus_steps, (x, y) = heapq.heappop(queue)
        if remaining(x, y) == 0:
            return -minus_steps
        for move in moves if -minus_steps == cost[x, y] else ():
            end = (min(max(x + move[0], 0), room[0] - 1), min(max(y + move[1], 0), room[1] - 1))
            if free[end] and 1 - minus_steps < cost.get(end, FAR):
                cost[end] = 1 - minus_steps
                heapq.heappush(queue, (1 - minus_steps + remaining(*end), minus_steps - 1, end))
    return FAR


@pytest.mark.thorough
@every_task
@pytest.mark.parametrize(("speed", "directions", "count"), [(0.8, 8, 20), (1.0, None, 3), (1.0, 8, 10)])
def test_tables_give_plans_of_the_cost_that_a_search_finds(
    task: Task, speed: float, directions: int | None, count: int
) -> None:
    expert, layout, step = AStarExpert(task, speed, directions), task.layout(), round(20 * speed)
    states = random_states(layout, count)
    for state, cost in zip(states, expert.cost(states), strict=True):
        ends = (state[:2], layout.goals[int(state[REACHED].sum())])
        start, goal = (tuple(np.rint(each).astype(int).tolist()) for each in ends)
        tried = (searched_cost(layout, start, goal, each, directions or 32) for each in (step, step // 4, 2))
        assert len(expert.plan(state)) - 1 == cost == next(each for each in tried if each < FAR)


@every_task
def test_plans_are_walkable_and_end_at_the_goal(task: Task) -> None:
    expert, free = AStarExpert(task), task.layout().free()
    for state in random_states(task.layout(), 30, seed=1):
        path = expert.plan(state)
        goal = task.layout().goals[int(state[REACHED].sum())]
        pixels = np.rint(path).astype(int)
        assert np.allclose(path[0], state[:2], atol=1e-3)
        assert free[pixels[:, 0], pixels[:, 1]].all()
        moves = {tuple(move) for move in np.abs(np.diff(pixels, axis=0)).tolist()}
        assert moves <= {(0, 16), (16, 0), (16, 16)} or pixels.max() >= 799  # the border shortens moves
        assert (np.abs(pixels[-1] - goal) < 20).all()
        assert not (np.abs(pixels[:-1] - goal) < 20).all(axis=1).any()


@every_task
@pytest.mark.parametrize(("speed", "directions"), [(0.8, 8), (1.0, None)])
def test_each_decision_brings_the_goal_one_step_nearer(task: Task, speed: float, directions: int | None) -> None:
    expert = AStarExpert(task, speed, directions)
    states = random_states(task.layout(), 300, seed=2)
    states[:, :2] = np.rint(states[:, :2])
    actions, _ = expert.predict(states)
    after = states.copy()
    after[:, :2] = np.clip(np.rint(states[:, :2] + 20.0 * actions), 0, np.array(task.room_size) - 1)
    cost = expert.cost(states)
    moving = cost > 0
    assert (expert.cost(after)[moving] == cost[moving] - 1).all()


@every_task
def test_paper_setting_succeeds_at_the_paper_length(task: Task) -> None:
    lengths, success = episode_lengths(AStarExpert(task), task.env_id, 50, clip_noise=False)
    assert success.all()
    assert lengths.mean() == pytest.approx(PAPER_ASTAR[task.name], rel=0.05)


@every_task
def test_full_speed_at_any_angle_beats_the_paper_human(task: Task) -> None:
    for clip_noise in (False, True):
        expert = AStarExpert(task, speed=1.0, directions=None)
        lengths, success = episode_lengths(expert, task.env_id, 50, clip_noise=clip_noise)
        assert success.all()
        assert lengths.mean() < 0.9 * PAPER_HUMAN[task.name]


def test_moves_are_the_eight_directions_at_the_given_speed() -> None:
    states = random_states(PAPER_TASKS["maze"].layout(), 500)
    actions, _ = AStarExpert("maze", speed=0.8).predict(states)
    assert actions.dtype == np.float32
    assert set(np.abs(actions).ravel().tolist()) == {0.0, float(np.float32(0.8))}
    assert len(np.unique(actions, axis=0)) == 8
    any_angle, _ = AStarExpert("maze", speed=1.0, directions=None).predict(states)
    assert (np.abs(any_angle).max(axis=1) == 1.0).all()
    assert len(np.unique(any_angle, axis=0)) > 16


def test_one_and_many_agree_and_repeat() -> None:
    expert, states = AStarExpert("maze"), random_states(PAPER_TASKS["maze"].layout(), 20)
    actions, state = expert.predict(states)
    assert state is None
    for row, action in zip(states, actions, strict=True):
        single, _ = expert.predict(row)
        assert single.shape == (2,)
        assert (single == action).all()
    assert (AStarExpert("Maze").predict(states)[0] == actions).all()


def test_an_ended_episode_gets_no_action() -> None:
    layout = PAPER_TASKS["zigzag"].layout()
    state = join_state(layout.goals[-1], layout.goals, np.asarray(6))
    expert = AStarExpert("zigzag")
    assert (expert.predict(state)[0] == 0).all()
    assert expert.plan(state).shape == (1, 2)
    assert expert.cost(state) == 0


def test_any_environment_of_the_task_will_do() -> None:
    task = PAPER_TASKS["four-room"]
    state = random_states(task.layout(), 1)[0]
    expected = AStarExpert(task).predict(state)[0]
    environments: list[Any] = [
        gym.make(task.env_id),
        gym.make(task.env_id).unwrapped,
        gym.make_vec(task.env_id, num_envs=2),
        gym.make_vec(task.env_id, num_envs=2, vectorization_mode="sync"),
    ]
    for env in environments:
        assert (AStarExpert(env).predict(state)[0] == expected).all()


@pytest.mark.parametrize(
    "arguments", [{"relative_goals": True}, {"observe_goals": False}, {"obs_type": "pixels"}], ids=str
)
def test_other_observations_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        AStarExpert(gym.make("PIDMNav-Maze-v0", **arguments))
    with pytest.raises(ValueError, match=next(iter(arguments))):
        AStarExpert(gym.make_vec("PIDMNav-Maze-v0", num_envs=2, **arguments))


def test_what_is_no_state_vector_is_refused() -> None:
    expert, state = AStarExpert("maze"), random_states(PAPER_TASKS["maze"].layout(), 1)[0]
    with pytest.raises(ValueError, match="32 features"):
        expert.predict(state[:2])
    with pytest.raises(ValueError, match="give state vectors in pixels"):
        expert.predict(state / 800)
    with pytest.raises(ValueError, match="give state vectors in pixels"):
        expert.predict(np.where(np.arange(32) == 0, np.nan, state))
    with pytest.raises(ValueError, match="wrapper"):
        AStarExpert(gym.wrappers.RescaleObservation(gym.make("PIDMNav-Maze-v0"), np.float32(0), np.float32(1)))
    with pytest.raises(ValueError, match="CartPole"):
        AStarExpert(gym.make("CartPole-v1"))
    with pytest.raises(ValueError, match="speed is 2"):
        AStarExpert("maze", speed=2)
    with pytest.raises(ValueError, match="directions is 4"):
        AStarExpert("maze", directions=4)


def test_random_starts_and_goals() -> None:
    env = gym.make("PIDMNav-FourRoom-v0", random_start=True, random_goals=True)
    lengths, success = episode_lengths(AStarExpert(env), "PIDMNav-FourRoom-v0", 6, random_start=True, random_goals=True)
    assert success.all()
    assert len(set(lengths.tolist())) > 1


CORRIDOR = """\
###########
#...#.....#
#.A.#.....#
#.......1.#
#...#.....#
###########
"""


def test_a_map_of_ones_own() -> None:
    env_id = "PIDMNav-Custom-v0"
    arguments: dict[str, Any] = {"layout": CORRIDOR, "room_size": [400, 300]}
    expert = AStarExpert(gym.make(env_id, **arguments))
    _, success = episode_lengths(expert, env_id, 5, limit=100, **arguments)
    assert success.all()


def test_shorter_steps_where_long_ones_miss_the_doorway() -> None:
    """A doorway of 23 px leaves 4 whole pixels for the box: a lattice of 16 px mostly passes it by."""
    layout = Layout.parse(CORRIDOR, (253, 138))
    start = join_state(layout.starts[0], layout.goals, np.asarray(0))
    assert planner_for(layout, 16, 8).look_up(layout.starts[:1], layout.goals[:1])[0] == FAR
    expert = AStarExpert(layout)
    assert len(expert.plan(start)) - 1 == expert.cost(start) < FAR
    assert 0 < np.abs(expert.predict(start)[0]).max() < 0.8


def test_compass_has_each_direction_once() -> None:
    for directions in (8, 32):
        moves = compass(16, directions)
        assert len({tuple(move) for move in moves.tolist()}) == directions
        assert (np.abs(moves).max(axis=1) == 16).all()
