"""A logger: every entry of the training log goes to a function of yours, here a CSV file, or W&B's `run.log`."""

import csv
from pathlib import Path

from pidm_nav import load_demos, train


class CSVLog:
    """Writes the entries of a training run to a file, and a header before the first."""

    def __init__(self, path):
        self.path, self.names = Path(path), []

    def __call__(self, entry):
        with self.path.open("a" if self.names else "w", newline="") as file:
            if not self.names:
                self.names = list(entry)
                file.write(",".join(self.names) + "\n")
            csv.DictWriter(file, self.names, extrasaction="ignore").writerow(entry)


if __name__ == "__main__":
    demos = load_demos("zigzag/human-like").sample(2, seed=0)
    train("pidm", demos, steps=600, progress=False, on_log=CSVLog("losses.csv"))
    print(Path("losses.csv").read_text())
