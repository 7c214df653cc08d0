"""Record a player and train on what was recorded, as `pidm-nav record` and `pidm-nav train` do.

Here the player is a script that moves the stick like a person, so that this runs without a gamepad or a window:
the recorder's session takes one reading of the stick a frame and writes a file whenever an episode ends.

Run it:  python examples/03_record_and_train.py [--fast] [--out my_demos.npz]
"""

import argparse

import gymnasium as gym

import pidm_nav  # noqa: F401, registers the ids
from pidm_nav.agents import train
from pidm_nav.demos import load_demos
from pidm_nav.demos.experts.humanlike import HumanLike
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.gamepad import Reading
from pidm_nav.demos.recorder.session import Session
from pidm_nav.rollout import evaluate

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="fewer episodes and training steps")
parser.add_argument("--out", default="my_demos.npz", help="episodes are added to a file that exists")
arguments = parser.parse_args()

env = gym.make("PIDMNav-FourRoom-v0")
file = DemoFile(arguments.out, task="four-room", env_kwargs={})
session = Session(env, episodes=2 if arguments.fast else 5, file=file, only_success=True)
player = HumanLike(env, seed=len(file))  # another player than the one who made what is there
memory, said = None, ""
while session.phase != "complete":
    # An episode begins with the first push of a stick that was let go before.
    begins = session.steps == 0
    if begins and session.phase == "ready":
        session.tick(Reading(stick=(0.0, 0.0), device="script"))
    stick, memory = player.predict(session.state, memory, episode_start=begins)
    session.tick(Reading(stick=(float(stick[0]), float(stick[1])), device="script"))
    if session.message and session.message != said:
        said = session.message
        print(said)
file.close()

demos = load_demos(arguments.out)
summary = demos.summary()
print(f"{arguments.out} holds {summary.episodes} episodes of {summary.mean_length:.0f} steps on average")
agent = train("pidm", demos, steps=100 if arguments.fast else 2000)
result = evaluate(agent, "four-room", episodes=10 if arguments.fast else 50)
print(f"PIDM trained on them reaches {result.mean_goal_ratio:.0%} of the goals")
