"""How long an agent that sees images takes to decide, next to the 28.6 ms of a tic of the 3D world.

    python benchmarks/decision_time.py [--size 96] [--decisions 500]

One image at a time, as in a real-time episode, on one thread. The agents are trained for one step, as the time does not
depend on the weights. Both wall time and processor time are shown: the difference is due to other programs, which a
real-time agent must bear too.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from gymnasium import spaces

from pidm_nav.agents import train
from pidm_nav.console import print_table
from pidm_nav.demos.dataset import DemoDataset, Episode
from pidm_nav.world3d.engine import TICS_PER_SECOND

TIC = 1000 / TICS_PER_SECOND  # ms
STEPS = 400  # of an episode, as in the tour


def demonstrations(shape: tuple[int, ...], count: int, rng: np.random.Generator) -> DemoDataset:
    """Episodes of noise: only their sizes matter."""
    episodes = (
        Episode(
            rng.integers(0, 256, (STEPS + 1, *shape), dtype=np.uint8),
            rng.uniform(-1, 1, (STEPS, 4)),
            np.zeros(STEPS),
            terminated=True,
            truncated=False,
        )
        for _ in range(count)
    )
    return DemoDataset("PIDMNav3D-Tour-v0", tuple(episodes))


def measure(name: str, frames: str, dataset: DemoDataset, decisions: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the wall and processor time of each decision in milliseconds, without the first ones."""
    observations = dataset[0].observations
    space = spaces.Box(0, 255, observations.shape[1:], np.uint8)
    env_spaces = space, spaces.Box(-1, 1, (4,), np.float32)
    agent = train(name, dataset, "pixels", env_spaces=env_spaces, steps=1, frames=frames)
    state, spent = None, []
    for step in range(decisions + 20):
        began = time.perf_counter(), time.process_time()
        _, state = agent.predict(observations[step % STEPS], state, np.array([step == 0]))
        spent.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    clock, processor = 1000 * np.array(spent[20:]).T
    return clock, processor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=96, help="width of an image; its height is three quarters of it")
    parser.add_argument("--decisions", type=int, default=500)
    options = parser.parse_args()
    torch.set_num_threads(1)
    shape = (options.size * 3 // 4, options.size, 3)
    dataset = demonstrations(shape, 4, np.random.default_rng(0))
    rows = []
    for name in ("bc", "pidm"):
        for frames in ("cnn", "random"):
            clock, processor = measure(name, frames, dataset, options.decisions)
            cells = [f"{np.percentile(each, q):.1f} ms" for each in (clock, processor) for q in (50, 99)]
            headings = ("clock p50", "clock p99", "processor p50", "processor p99")
            row = {"agent": name, "frames": frames, **dict(zip(headings, cells, strict=True))}
            rows.append({**row, "p99 of a tic": f"{np.percentile(clock, 99) / TIC:.0%}"})
    print_table(rows)


if __name__ == "__main__":
    main()
