"""From pixels: BC trains a CNN on images of the room, and PIDM uses the same CNN, frozen.

Run it:  python examples/07_pixels.py [--fast]
"""

import argparse
from typing import Any

from pidm_nav import AStarExpert, collect, evaluate, train

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="train for a few steps, too few to learn anything")
fast = parser.parse_args().fast
settings: dict[str, Any] = {"steps": 2} if fast else {}  # by default those of the presets `pixels` and `frozen`
episodes = 2 if fast else 20

looks: dict[str, Any] = {"obs_type": "pixels", "image_size": 64}
demos = collect(AStarExpert("zigzag"), "zigzag", episodes=2 if fast else 10, **looks)  # the expert gets state vectors
print("images of the first episode:", demos[0].observations.shape, demos[0].observations.dtype)

bc = train("bc", demos, **settings)
bc.save("zigzag-pixels-bc")
pidm = train("pidm", demos, frames="agent:zigzag-pixels-bc", **settings)
for name, agent in (("BC", bc), ("PIDM", pidm)):
    print(f"{name:4} reaches {evaluate(agent, 'zigzag', episodes, **looks).mean_goal_ratio:.0%} of the goals")
