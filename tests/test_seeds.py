"""Seeds: whatever makes episodes by default does so with seeds that nothing else uses."""

from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from pidm_nav import seeds
from pidm_nav.agents import dagger, train
from pidm_nav.cli import main
from pidm_nav.demos.collect import collect
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.experts.random_play import collect_random_play
from pidm_nav.demos.formats import load_demos, save_demos
from pidm_nav.experiments.jobs import run_job
from pidm_nav.experiments.sweep import Sweep
from pidm_nav.rollouts.evaluation import evaluate

TINY: dict[str, Any] = {"steps": 2, "batch_size": 8, "encoder_sizes": (8,), "head_sizes": (8,), "progress": False}
RANGES = {name: getattr(seeds, name) for name in ("DEMONSTRATIONS", "VALIDATION", "TEST", "DAGGER", "RANDOM_PLAY")}


class Noted(gym.Env[Any, Any]):
    """Notes the seeds that it is reset with."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))
    noted: ClassVar[list[int]] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        Noted.noted += [] if seed is None else [seed]
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.observation_space.sample(), 0.0, False, False, {}


class Still:
    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> Any:
        return np.zeros((len(observation), 1), np.float32), state


@pytest.fixture(autouse=True)
def task() -> Iterator[str]:
    gym.register("Noted-v0", Noted, max_episode_steps=5)
    Noted.noted = []
    yield "Noted-v0"
    del gym.registry["Noted-v0"]


def test_ranges_are_disjoint() -> None:
    for one, other in combinations(RANGES.values(), 2):
        assert one.stop <= other.start or other.stop <= one.start


def test_shipped_demonstrations_have_seeds_of_demonstrations() -> None:
    assert all(episode.seed in seeds.DEMONSTRATIONS for episode in load_demos("maze/human-like"))


def _train(demos: DemoDataset, folder: Path) -> None:
    train("bc", demos, eval_episodes=2, **TINY)


def _dagger(demos: DemoDataset, folder: Path) -> None:
    dagger("bc", demos, 2, Still(), **TINY)


def _sweep(demos: DemoDataset, folder: Path) -> None:
    save_demos(demos, folder / "demos.npz")
    sweep = Sweep(demos=(str(folder / "demos.npz"),), agents=("bc",), num_demos=(1,), steps=2, episodes=2)
    run_job(sweep.job(sweep.cells()[0]))


def _train_with_play(demos: DemoDataset, folder: Path) -> None:
    save_demos(demos, folder / "demos.npz")
    options = ["--idm-demos", "random", "--random-play-steps", "20", "--steps", "2", "--eval-episodes", "0"]
    files = ["--demos", str(folder / "demos.npz"), "--out", str(folder / "agent")]
    main(["train", "--agent", "pidm", *files, *options])


def _evaluate_command(demos: DemoDataset, folder: Path) -> None:
    train("bc", demos, out=folder / "agent", **TINY)
    Noted.noted = []
    main(["evaluate", str(folder / "agent"), "--episodes", "2"])


@pytest.mark.parametrize(
    ("run", "wanted"),
    [
        (lambda demos, folder: collect(Still(), demos.task, 2), "DEMONSTRATIONS"),
        (lambda demos, folder: collect_random_play(demos.task, 12), "RANDOM_PLAY"),
        (lambda demos, folder: evaluate(Still(), demos.task, 2), "TEST"),
        (_train, "VALIDATION"),
        (_dagger, "DAGGER"),
        (_sweep, "TEST"),
        (_train_with_play, "RANDOM_PLAY"),
        (_evaluate_command, "TEST"),
    ],
    ids=["collect", "play", "evaluate", "train", "dagger", "sweep", "train with play", "evaluate command"],
)
def test_defaults_use_their_own_range(
    run: Callable[[DemoDataset, Path], Any], wanted: str, task: str, tmp_path: Path
) -> None:
    demos = collect(Still(), task, 2)
    Noted.noted = []
    run(demos, tmp_path)
    assert {name for seed in Noted.noted for name, each in RANGES.items() if seed in each} == {wanted}


def test_no_two_training_seeds_share_play() -> None:
    ranges = [range(first := seeds.random_play_seed(seed, 500), first + 500) for seed in (0, 1, 2, 10**12)]
    assert all(each.stop - 1 in seeds.RANDOM_PLAY for each in ranges)
    assert all(one.stop <= other.start for one, other in combinations(ranges, 2))
