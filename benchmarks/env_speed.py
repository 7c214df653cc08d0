"""Measures how fast the environments step compared to Gymnasium's own, as ratios within one run.

    python benchmarks/env_speed.py

Machines differ, and so does their load, so the environments take turns, block by block. Each is judged by the median of
its ratios to the reference of the same turn. Time is processor time, of all threads together: ours and Gymnasium's use
one, JAX several. A turn of a vector environment is as long as a block of noise, so that each turn pays for drawing one.

Where they are installed, JAX and gymnax take part as outside references.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import gymnasium as gym
import numpy as np

from pidm_nav import PAPER_TASKS
from pidm_nav.console import print_table, say
from pidm_nav.world2d.world import NOISE_BLOCK

Run = Callable[[int], float]

NOISE = "the noise of these, drawn alone"
ACTIONS = 512  # number of different actions, so that no agent drifts into a corner and stays there


def single(env_id: str) -> Run:
    """Return a function that takes n steps and returns the seconds per step."""
    env = gym.make(env_id)
    env.action_space.seed(0)
    env.reset(seed=0)
    actions = [env.action_space.sample() for _ in range(ACTIONS)]

    def run(steps: int) -> float:
        begin = time.process_time()
        for step in range(steps):
            _, _, terminated, truncated, _ = env.step(actions[step % ACTIONS])
            if terminated or truncated:
                env.reset()
        return (time.process_time() - begin) / steps

    return run


def many(env_id: str, num_envs: int) -> Run:
    """Return the same for a vector environment, in which a step moves all rows."""
    envs = gym.make_vec(env_id, num_envs=num_envs)
    envs.action_space.seed(0)
    envs.reset(seed=0)
    actions = [envs.action_space.sample() for _ in range(ACTIONS)]
    clock = iter(range(10**9))

    def run(steps: int) -> float:
        begin = time.process_time()
        for _ in range(steps):
            envs.step(actions[next(clock) % ACTIONS])
        return (time.process_time() - begin) / steps

    return run


def noise_alone(num_envs: int) -> Run:
    """Return the same for what no code of ours can save: each row's generator draws the noise of each step."""
    rngs = [np.random.default_rng(row) for row in range(num_envs)]
    blocks = np.empty((num_envs, NOISE_BLOCK, 2))

    def run(steps: int) -> float:
        begin = time.process_time()
        for _ in range(steps // NOISE_BLOCK):
            for rng, block in zip(rngs, blocks, strict=True):
                rng.standard_normal(out=block)
        return (time.process_time() - begin) / steps

    return run


def many_in_jax(advance: Callable[..., Any], state: Any, num_envs: int) -> Run:
    """Return the same for a function of JAX, (keys, state, actions) -> (observations, state, ...), on the processor."""
    import jax

    keys = jax.random.split(jax.random.key(0), ACTIONS)
    actions = list(jax.random.uniform(jax.random.key(1), (ACTIONS, num_envs, 2), minval=-1.0))
    step_all = jax.jit(lambda key, state, action: advance(jax.random.split(key, num_envs), state, action))
    clock = iter(range(10**9))

    def run(steps: int) -> float:
        nonlocal state
        begin = time.process_time()
        for _ in range(steps):
            turn = next(clock) % ACTIONS
            observations, state, *_ = step_all(keys[turn], state, actions[turn])
            observations.block_until_ready()  # an agent needs them before its next action
        return (time.process_time() - begin) / steps

    return run


def point_robot(num_envs: int) -> Run:
    """Return gymnax's PointRobot: a point that looks for a goal on a circle, without noise and walls."""
    import gymnax
    import jax

    env, parameters = gymnax.make("PointRobot-misc")
    _, state = jax.vmap(env.reset, (0, None))(jax.random.split(jax.random.key(0), num_envs), parameters)
    step_rows = jax.vmap(env.step, (0, 0, 0, None))
    return many_in_jax(lambda keys, state, actions: step_rows(keys, state, actions, parameters), state, num_envs)


def point_mass(num_envs: int) -> Run:
    """Return a point mass as in Brax: forces, friction, walls only around the room, noise, and resets on the way."""
    import jax
    import jax.numpy as jnp

    def step_row(key: Any, state: Any, action: Any) -> Any:
        position, velocity, goal, age = state
        force = jnp.clip(action + 0.2 * jax.random.normal(key, (2,)), -1.0, 1.0)
        velocity = 0.9 * velocity + 0.05 * force
        position = jnp.clip(position + 0.05 * velocity, -1.0, 1.0)
        done = (jnp.linalg.norm(goal - position) < 0.05) | (age >= 300)
        fresh = jnp.zeros(2), jnp.zeros(2), jax.random.uniform(key, (2,), minval=-1.0), 0
        state = jax.tree.map(lambda new, old: jnp.where(done, new, old), fresh, (position, velocity, goal, age + 1))
        return jnp.concatenate(state[:3]), state, done

    zeros = jnp.zeros((num_envs, 2))
    state = zeros, zeros, jax.random.uniform(jax.random.key(2), (num_envs, 2), minval=-1.0), jnp.zeros(num_envs, int)
    return many_in_jax(jax.vmap(step_row), state, num_envs)


def contestants(ids: list[str], num_envs: int) -> dict[str, Run]:
    """Return the vector environments that can take part: CartPole first, then ours, then the outside references."""
    runs = {env_id: many(env_id, num_envs) for env_id in ["CartPole-v1", *ids]}
    runs[NOISE] = noise_alone(num_envs)
    if find_spec("jax"):
        runs["point mass in JAX"] = point_mass(num_envs)
        if find_spec("gymnax"):
            runs["PointRobot of gymnax"] = point_robot(num_envs)
    return runs


def compare(runs: dict[str, Run], steps: int, turns: int) -> dict[str, tuple[float, float]]:
    """Return the median seconds per step, and the median speed relative to the first environment of the same turn."""
    for run in runs.values():
        run(steps)
    seconds = np.array([[run(steps) for run in runs.values()] for _ in range(turns)])
    ratios = np.median(seconds[:, :1] / seconds, axis=0)
    return {name: (s, r) for name, s, r in zip(runs, np.median(seconds, axis=0), ratios, strict=True)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--num-envs", type=int, nargs="+", default=[4096, 16384], help="rows of the vector environments"
    )
    parser.add_argument("--turns", type=int, default=15, help="number of turns that each environment takes")
    options = parser.parse_args()

    missing = {"jax": "the point mass in JAX", "gymnax": "gymnax's PointRobot"}
    for package, part in missing.items():
        if find_spec(package) is None:
            say(f"{package} is not installed, so {part} is left out: pip install {package}")
    ids = [task.env_id for task in PAPER_TASKS.values()]
    one = compare({i: single(i) for i in ["Pendulum-v1", *ids]}, 3000, options.turns)
    measured = [("gym.make", 1, one)]
    for num_envs in options.num_envs:
        measured.append(("gym.make_vec", num_envs, compare(contestants(ids, num_envs), NOISE_BLOCK, options.turns)))
    rows = [
        {
            "made by": how if "-v" in env_id else "NumPy" if env_id == NOISE else "jax.jit",
            "environment": env_id,
            "rows": num_envs,
            "µs per step": f"{seconds * 1e6:,.1f}",
            "ns per agent step": f"{seconds / num_envs * 1e9:,.1f}",
            "agent steps per second": f"{num_envs / seconds:,.0f}",
            "times the reference": f"{ratio:.2f}",
        }
        for how, num_envs, results in measured
        for env_id, (seconds, ratio) in results.items()
    ]
    print_table(rows)


if __name__ == "__main__":
    main()
