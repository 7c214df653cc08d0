"""A logger: every entry of the training log goes to a function of yours, here a CSV file, or W&B's `run.log`."""

import csv
from pathlib import Path

import numpy as np

from pidm_nav import load_demos, train


class CSVLog:
    """Writes the entries of a training run to a file, and a header before the first."""

    def __init__(self, path):
        self.file = Path(path).open("w", newline="")
        self.writer = None

    def __call__(self, entry):
        if self.writer is None:
            self.writer = csv.DictWriter(self.file, fieldnames=list(entry), extrasaction="ignore")
            self.writer.writeheader()
        self.writer.writerow(entry)
        self.file.flush()


if __name__ == "__main__":
    demos = load_demos("zigzag/human-like").sample(2, np.random.default_rng(0))
    train("pidm", demos, steps=600, progress=False, on_log=CSVLog("losses.csv"))
    print(Path("losses.csv").read_text())
