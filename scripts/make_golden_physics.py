"""Write tests/golden_physics.npz: steps of the dynamics in each task, so that a fresh clone tests them bit for bit.

Run it only after the physics has been checked against the paper's own vectors (tests/test_physics.py with ../shared).
"""

from pathlib import Path

import numpy as np

from pidm_nav.tasks import TASKS
from pidm_nav.world2d.physics import Physics


def main() -> None:
    arrays = {}
    for rank, (name, task) in enumerate(TASKS.items()):
        rng = np.random.default_rng(rank)
        physics = Physics(task.layout, clip_noise=False, deadzone=0.0)
        # Walks that keep a direction for a while, so that they run into walls and corners.
        x, y = np.repeat(task.layout.starts, 25, axis=0).T.copy()
        steps = []
        for step in range(40):
            if step % 8 == 0:
                heading = rng.uniform(-1.2, 1.2, (2, 25))
            velocity = heading + rng.normal(0, 0.3, (2, 25))
            new_x, new_y = physics.move(x, y, *velocity, np.zeros(25), np.zeros(25))
            steps.append(np.stack([x, y, *velocity, new_x, new_y], axis=1))
            x, y = new_x, new_y
        table = np.concatenate(steps)
        for column, key in enumerate(["position", "velocity", "next_position"]):
            arrays[f"{name}/{key}"] = table[:, 2 * column : 2 * column + 2]
    np.savez_compressed(Path(__file__).parents[1] / "tests" / "golden_physics.npz", **arrays)


if __name__ == "__main__":
    main()
