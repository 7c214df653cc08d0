"""Record a player and train on what was recorded, as `pidm-nav record` and `pidm-nav train` do.

Here the player is a script that moves the stick like a person, so that this runs without a gamepad or a window:
the recorder's session takes one reading of the stick per frame and writes a file whenever an episode ends.

Run it:  python examples/03_record_and_train.py [--fast] [--out my_demos.npz]
"""

import argparse

from pidm_nav import HumanLikePlayer, evaluate, find_task, load_demos, train
from pidm_nav.demos.recorder.controls import Reading
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.session import Rules, Session

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="record fewer episodes and train for fewer steps")
parser.add_argument("--out", default="my_demos.npz", help="file to record to; an existing one is added to")
arguments = parser.parse_args()

task = find_task("four-room")
file = DemoFile(arguments.out, task, env_kwargs={})
session = Session(task, {}, Rules(episodes=2 if arguments.fast else 5, only_success=True), file)
player = HumanLikePlayer(task, seed=len(file))  # another player than the one who made what is there
memory, said = None, ""
while session.phase != "complete":
    # An episode begins with the first push of a stick that was let go before.
    begins = session.person.steps == 0
    if begins and session.phase == "ready":
        session.tick(Reading(stick=(0.0, 0.0), device="script"))
    stick, memory = player.predict(session.person.state, memory, episode_start=begins)
    session.tick(Reading(stick=(float(stick[0]), float(stick[1])), device="script"))
    if session.message and session.message != said:
        said = session.message
        print(said)
session.close()

demos = load_demos(arguments.out)
summary = demos.summary()
print(f"{arguments.out} holds {summary.episodes} episodes of {summary.mean_length:.0f} steps on average")
agent = train("pidm", demos, steps=100) if arguments.fast else train("pidm", demos)
result = evaluate(agent, "four-room", episodes=10 if arguments.fast else 50)
print(f"PIDM trained on them reaches {result.mean_goal_ratio:.0%} of the goals")
