"""Write tests/golden_physics.npz: steps of the dynamics in each task, so that a fresh clone tests them bit for bit.

Run it only after the physics has been checked against the paper's own vectors (tests/test_physics.py with ../shared).
"""

from pathlib import Path

import numpy as np

from pidm_nav.tasks import PAPER_TASKS
from pidm_nav.world2d.physics import Physics


def main() -> None:
    arrays = {}
    for rank, (name, task) in enumerate(PAPER_TASKS.items()):
        rng = np.random.default_rng(rank)
        physics = Physics(task.layout(), clip_noise=False, deadzone=0.0)
        # Walks that keep a direction for a while, so that they run into walls and corners.
        position = np.repeat(task.layout().starts, 25, axis=0)
        steps = []
        for step in range(40):
            if step % 8 == 0:
                heading = rng.uniform(-1.2, 1.2, (2, 25))
            velocity = (heading + rng.normal(0, 0.3, (2, 25))).T
            moved = physics.move_many(position, velocity, np.zeros((25, 2)))
            steps.append(np.hstack([position, velocity, moved]))
            position = moved
        table = np.concatenate(steps)
        for column, key in enumerate(["position", "velocity", "next_position"]):
            arrays[f"{name}/{key}"] = table[:, 2 * column : 2 * column + 2]
    np.savez_compressed(Path(__file__).parents[1] / "tests" / "golden_physics.npz", **arrays)


if __name__ == "__main__":
    main()
