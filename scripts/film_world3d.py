"""Film BC and PIDM side by side in one episode of the 3D study, with the agents that scripts/run_world3d.py trained.

Run it:  python scripts/film_world3d.py --work FOLDER

The agents are those of the first seed with 15 demonstrations. Of their rollouts, the one with the median lead of PIDM
over BC is filmed.
"""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from pathlib import Path

import numpy as np
import torch
import tyro
from report_world3d import FOLDER, TITLES
from run_world3d import LEVEL, MAX_STEPS, MIDDLE, ROLLOUTS, SEEDS, TEST, Cell, Eyes, gather, policies

from pidm_nav.tasks import find_task
from pidm_nav.video import side_by_side, write_video

FPS, EVERY = 12, 2


def median_episode(jobs: Path, cell: Cell) -> int:
    """Return the rollout in which PIDM's lead over BC is the median one."""
    for text in jobs.read_text(encoding="utf-8").splitlines():
        job = json.loads(text)
        if all(job[name] == value for name, value in cell._asdict().items()):
            scores = {name: np.array(each["alone_list"]) for name, each in job["agents"].items()}
            return int(np.argsort(scores["pidm"] - scores["bc"], kind="stable")[ROLLOUTS // 2])
    raise SystemExit(f"{jobs} has no job {tuple(cell)}: run scripts/run_world3d.py --part A first")


def main(work: Path, out: Path = FOLDER / "tour-3d-bc-and-pidm.mp4") -> None:
    """Write the film."""
    torch.set_num_threads(1)
    cell = Cell("A", 0.0, MIDDLE, SEEDS.start)
    episode = median_episode(work / "jobs.jsonl", cell)
    material = gather(work, cell)
    frames, titles = [], []
    with ExitStack() as stack:
        for name, policy in policies(material):
            env = stack.enter_context(closing(find_task(LEVEL).make(max_steps=MAX_STEPS)))
            eyes, memory = Eyes(material.vision, [env], [TEST[episode]]), None
            own = [env.unwrapped.picture()]
            while eyes.running.any():
                actions, memory = policy(eyes.seen(), memory)
                eyes.step(actions)
                own.append(env.unwrapped.picture())
            (info,) = eyes.infos
            frames.append(own)
            titles.append(f"{TITLES[name]}: {int(np.sum(info['achieved']))} of {info['num_goals']} milestones")
    length = max(map(len, frames))
    padded = [own + own[-1:] * (length - len(own)) for own in frames]
    print(f"environment seed {TEST[episode]}: {', '.join(titles)}")
    write_video((side_by_side(pair, titles) for pair in zip(*padded, strict=True)), out, FPS, EVERY)


if __name__ == "__main__":
    tyro.cli(main)
