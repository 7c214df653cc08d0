"""Make the demonstrations that come with the package, and compare the human-like ones with a person's.

    python scripts/make_demos.py                          writes demos/data/*.npz
    python scripts/make_demos.py --compare FOLDER         prints the table of docs/experts.md; FOLDER holds the
                                                          paper's recordings as {four_room,...}_human.npz

The files are made with the environment's defaults, so that they can be merged with a user's own recordings. The
comparison plays new episodes with the dynamics of the paper's recordings (`clip_noise=False`). The same version of
NumPy and SciPy gives the same files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from play_statistics import PlayStatistics, play_statistics

from pidm_nav.demos.collect import collect
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.experts.humanlike import HumanLikePlayer
from pidm_nav.demos.formats.npz import load_demos, save_demos
from pidm_nav.tasks import PAPER_TASKS

DATA = Path(__file__).parents[1] / "demos" / "data"
EPISODES = 50
ROWS = {
    "length, mean": "{0.mean_length:.1f}",
    "length, std": "{0.length_std:.1f}",
    "length, min to max": "{0.min_length} to {0.max_length}",
    "stick deflection, mean": "{0.deflection:.3f}",
    "stick deflection, std": "{0.deflection_std:.3f}",
    "stick change per step": "{0.stick_change:.3f}",
    "action variance near goals": "{0.variance_near:.2f}",
    "action variance elsewhere": "{0.variance_far:.2f}",
    "in the same place, near goals": "{0.local_variance_near:.2f}",
    "in the same place, elsewhere": "{0.local_variance_far:.2f}",
}


def make() -> None:
    for task in PAPER_TASKS:
        for policy in (AStarExpert(task), HumanLikePlayer(task)):
            made_by = policy.settings["expert"]
            demos = collect(policy, task, EPISODES, made_by=made_by)
            save_demos(demos, DATA / f"{task}_{made_by}.npz")
            print(f"{task}/{made_by}: {demos.summary()}")


def compare(folder: Path) -> None:
    columns: list[PlayStatistics] = []
    for task in PAPER_TASKS:
        columns.append(play_statistics(load_demos(folder / f"{task.replace('-', '_')}_human.npz")))
        columns.append(play_statistics(collect(HumanLikePlayer(task), task, EPISODES, clip_noise=False)))
    print("| |", " | ".join(f"{task.title} person | script" for task in PAPER_TASKS.values()), "|")
    print("|---|" + "---|" * len(columns))
    for name, form in ROWS.items():
        print(f"| {name} |", " | ".join(form.format(column) for column in columns), "|")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make or compare the package's demonstrations.")
    parser.add_argument("--compare", type=Path, help="folder with the paper's recordings of people")
    arguments = parser.parse_args()
    if arguments.compare:
        compare(arguments.compare)
    else:
        make()
