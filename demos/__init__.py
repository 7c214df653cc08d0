"""Demonstrations: dataset, file formats, experts and recorder."""

from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset, Summary, Transitions
from pidm_nav.demos.edit import edit_demos
from pidm_nav.demos.experts import make_expert
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.experts.humanlike import HumanLikePlayer
from pidm_nav.demos.experts.random_play import RandomPlay, collect_random_play
from pidm_nav.demos.formats import from_minari, load_demos, save_demos, to_minari
from pidm_nav.rollouts.episode import Episode

__all__ = [
    "AStarExpert",
    "DemoDataset",
    "Episode",
    "HumanLikePlayer",
    "RandomPlay",
    "Summary",
    "Transitions",
    "collect",
    "collect_random_play",
    "edit_demos",
    "from_minari",
    "load_demos",
    "make_expert",
    "save_demos",
    "to_minari",
]
