"""Look at how corrective BC fails on Meta-World's door-open: where does the arm end, with one and with two frames?

Run it:  pip install metaworld packaging imageio;  python scripts/run_door_open.py

Meta-World's observations hold the current and the previous frame; the variant with one frame leaves out the previous.
The seeds (790, 791, environments from 20,000 and 30,000) are not those of docs/results/plans/worlds.md.
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from pidm_nav import collect, train

NAME, ONE_FRAME = "door-open-v3", "OneFrame-v0"
CURRENT = np.r_[0:18, 36:39]  # columns of the current frame and of the goal
BORDER = -0.49  # x of the hand, in meters, at the left border of the workspace


def main() -> None:
    sys.path.append(str(Path(__file__).parents[1] / "examples"))
    example = importlib.import_module("13_meta_world")

    def make(render_mode: str | None = None) -> gym.Env[Any, Any]:
        env = example.make(NAME, render_mode)
        space = gym.spaces.Box(
            env.observation_space.low[CURRENT], env.observation_space.high[CURRENT], dtype=env.observation_space.dtype
        )
        return gym.wrappers.TransformObservation(env, lambda observation: observation[CURRENT], space)

    gym.register(ONE_FRAME, make, max_episode_steps=200)
    task = example.register(NAME)
    both = collect(example.Expert(NAME), task, episodes=10, seed=20_000)
    both = both[[index for index, episode in enumerate(both) if episode.success][:5]]
    cut = tuple(replace(episode, observations=episode.observations[:, CURRENT]) for episode in both)
    for demos in (both, replace(both, task=ONE_FRAME, episodes=cut)):
        for agent in ("bc", "corrective-bc"):
            for seed in (790, 791):
                trained = train(agent, demos, progress=False, seed=seed)
                played = collect(trained, demos.task, episodes=10, seed=30_000)
                border = [episode.observations[-1, 0] <= BORDER for episode in played]
                success = [episode.success for episode in played]
                print(f"{demos.task} {agent} {seed}: success {np.mean(success)}, at the border {np.mean(border)}")


if __name__ == "__main__":
    main()
