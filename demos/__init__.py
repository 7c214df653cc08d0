"""Demonstrations: the dataset, its formats, the A* expert, the human-like demonstrator and the recorder."""

from pidm_nav.demos.dataset import DemoDataset, Episode, Summary, Transitions
from pidm_nav.demos.formats import load_demos, save_demos

__all__ = ["DemoDataset", "Episode", "Summary", "Transitions", "load_demos", "save_demos"]
