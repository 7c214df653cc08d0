"""Your first episode: make a task, let the A* expert play it, and save what happened as a GIF.

Run it:  python examples/01_first_episode.py [--fast] [--out first_episode.gif]
"""

import argparse
from typing import Any

import gymnasium as gym

from pidm_nav import AStarExpert
from pidm_nav.video import write_video

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="keep only every tenth frame")
parser.add_argument("--out", default="first_episode.gif", help="the GIF or mp4 file to write")
arguments = parser.parse_args()

env = gym.make("PIDMNav-FourRoom-v0", render_mode="rgb_array")
print("observation", env.observation_space.shape, "[x, y, (goal_x, goal_y, reached) for each goal] in pixels")
print("action     ", env.action_space.shape, "velocity along x and y, from -1 to 1")

expert = AStarExpert(env)
observation, info = env.reset(seed=0)
frames: list[Any] = [env.render()]
step, total = 0, 0.0
ended = False
while not ended:
    action, _ = expert.predict(observation)
    observation, reward, terminated, truncated, info = env.step(action)
    ended = terminated or truncated
    step, total = step + 1, total + float(reward)
    if info["reached_goal"] >= 0:
        x, y = observation[:2]
        print(f"step {step:3}: goal {info['reached_goal'] + 1} reached near ({x:.0f}, {y:.0f})")
    if step % (10 if arguments.fast else 2) == 0 or ended:
        frames.append(env.render())

print(f"return {total:.0f}, success {info['is_success']}, {step} steps")
print("wrote", write_video([frame[::2, ::2] for frame in frames], arguments.out, fps=15))
