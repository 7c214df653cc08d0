"""Demonstrations: the dataset, its formats, the A* expert, the human-like demonstrator and the recorder."""

from pidm_nav.demos.dataset import DemoDataset, Episode, Summary, Transitions
from pidm_nav.demos.formats.npz import from_minari, load_demos, save_demos, to_minari

__all__ = [
    "DemoDataset",
    "Episode",
    "Summary",
    "Transitions",
    "from_minari",
    "load_demos",
    "save_demos",
    "to_minari",
]
