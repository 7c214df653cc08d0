"""A map of your own: draw it in ASCII, check it, and let the expert walk through it.

`#` is a wall, `.` is free, `A` is the start, and `1`, `2`, ... are the goals in visiting order. The map is stretched
over `room_size` pixels. Starts and goals are centered on the upper left corner of their cell.

Run it:  python examples/04_custom_map.py [--fast] [--out custom_map.png]
"""

import argparse

from matplotlib.figure import Figure

from pidm_nav import AStarExpert, Layout, evaluate
from pidm_nav.world2d.render import draw_map

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="fewer episodes")
parser.add_argument("--out", default="custom_map.png")
arguments = parser.parse_args()

SPIRAL = """
##################
#................#
#.A..............#
#................#
###############..#
#................#
#................#
#...1............#
#..###############
#................#
#................#
#..............2.#
#................#
##################
"""
ROOM_SIZE = (900, 700)

try:
    Layout.parse(SPIRAL.replace("2", "3"))
except ValueError as error:
    print(f"a bad map gets an error that says what to change: {error}")

layout = Layout.parse(SPIRAL, ROOM_SIZE)
episodes = 4 if arguments.fast else 20
result = evaluate(AStarExpert(layout), "custom", episodes, layout=SPIRAL, room_size=ROOM_SIZE)
print(f"A*: {result.success_rate:.0%} of {episodes} episodes reach all goals, in {result.length.mean():.0f} steps")

figure = Figure(figsize=(6, 4.8), layout="constrained", dpi=120)
axes = figure.subplots()
draw_map(axes, layout)
for episode in result.episodes:
    axes.plot(*episode.observations[:, :2].T, color="#0072B2", alpha=0.4, linewidth=1)
figure.savefig(arguments.out)
print(f"wrote {arguments.out}")
