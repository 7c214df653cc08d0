"""The metric is a property of the task: what happens in an episode does not change how it is scored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import msgspec
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec

from pidm_nav.agents import train
from pidm_nav.cli import main
from pidm_nav.demos.collect import collect
from pidm_nav.demos.edit import edit_demos
from pidm_nav.demos.formats import save_demos
from pidm_nav.experiments.jobs import run_job
from pidm_nav.experiments.results import Checkpoint
from pidm_nav.experiments.sweep import Sweep
from pidm_nav.rollouts.comparison import Comparison
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.tasks import METRICS, TASKS, find_task


class Hopper(gym.Env[Any, Any]):
    """Earns 1 per step and falls, which terminates the episode, when it is pushed; in some episodes it says so."""

    observation_space, action_space = spaces.Box(-1, 1, (1,)), spaces.Box(-1, 1, (1,))

    def __init__(self, tells: bool = False) -> None:
        self.tells = tells

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.told = self.tells and bool(self.np_random.random() < 0.5)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        falls = bool(action[0] > 0.5)
        return np.zeros(1, np.float32), 1.0, falls, False, {"success": not falls} if self.told else {}


class Push:
    def __init__(self, force: float) -> None:
        self.force = force

    def predict(self, observation: Any, state: Any = None, *_: Any, **__: Any) -> Any:
        return np.full((len(observation), 1), self.force, np.float32), state


@pytest.fixture(autouse=True)
def envs() -> Iterator[None]:
    gym.register("Hopper-v99", Hopper, max_episode_steps=5)
    gym.register("Teller-v99", Hopper, max_episode_steps=5, kwargs={"tells": True})
    yield
    del gym.registry["Hopper-v99"], gym.registry["Teller-v99"]


def test_falling_is_no_success() -> None:
    fallen, standing = (evaluate(Push(force), "Hopper-v99", 3) for force in (1.0, 0.0))
    assert fallen.metric == standing.metric == "return"
    assert fallen.scores.tolist() == [1, 1, 1] and standing.scores.tolist() == [5, 5, 5]
    assert (
        fallen.success is None and fallen.goal_ratio is None and "success" not in fallen.summary() | fallen.table()[0]
    )
    assert "success" not in repr(fallen)
    with pytest.raises(ValueError, match="does not report success"):
        _ = fallen.success_rate


def test_a_training_log_has_one_metric() -> None:
    """The agent learns to fall: its first rollouts are truncated, its last ones terminate."""
    demos = collect(Push(1.0), "Hopper-v99", 4)
    entries: list[dict[str, Any]] = []
    sizes: dict[str, Any] = {"encoder_sizes": (8,), "head_sizes": (8,), "batch_size": 8, "learning_rate": 0.003}
    train("bc", demos, steps=500, eval_episodes=2, on_log=entries.append, progress=False, **sizes)
    scored = [{*entry} & {"return", "success_rate", "goal_ratio"} for entry in entries]
    assert {name for names in scored for name in names} == {"return"}
    assert [entry["return"] for entry in entries if "return" in entry][-1] == 1.0


def test_who_reports_success_in_some_episodes_is_compared_by_one_metric() -> None:
    players = {"falls": Push(1.0), "stands": Push(0.0)}
    comparison = Comparison({name: evaluate(player, "Teller-v99", 8) for name, player in players.items()})
    assert comparison.metric == "return" and [row["mean"] for row in comparison.table()] == [1.0, 5.0]
    told = Comparison({name: evaluate(p, "Teller-v99", 8, metric="success rate") for name, p in players.items()})
    fallen, standing = (row["mean"] for row in told.table())
    assert told.metric == "success rate" and fallen == 0.0 < standing < 1.0  # not told is not succeeded


def test_a_sweep_records_the_metric_before_any_job(tmp_path: Path) -> None:
    save_demos(collect(Push(1.0), "Teller-v99", 2), tmp_path / "demos.npz")
    common: dict[str, Any] = {"demos": (str(tmp_path / "demos.npz"),), "agents": ("retrieval-bc",), "num_demos": (1,)}
    for metric, score in (("return", {"mean_return": 1.0}), ("success rate", {"success": 0.0})):
        sweep = Sweep(episodes=3, metric=metric, **common)
        assert sweep.manifest().demos["Teller-v99"].metric == metric
        (checkpoint,) = run_job(sweep.job(sweep.cells()[0]))["checkpoints"]
        assert score.items() <= checkpoint.items() and not {"goal_ratio", "goals"} & {*checkpoint} - {"goals"}


@pytest.mark.parametrize(
    ("old", "score"),
    [
        ({"goal_ratio": 0.5, "success": 0.25, "goals": [2]}, ("goal ratio", 0.5)),
        ({"goal_ratio": 0.0, "success": 0.0, "mean_return": -3.0}, ("return", -3.0)),
        ({"success": 0.25}, ("success rate", 0.25)),
    ],
)
def test_files_of_every_kind_are_read(old: dict[str, Any], score: tuple[str, float]) -> None:
    assert msgspec.convert(old, Checkpoint).scored() == score
    with pytest.raises(msgspec.ValidationError, match="no score"):
        msgspec.convert({"step": 3}, Checkpoint)


def test_metrics_of_tasks() -> None:
    assert {task.metric for task in TASKS.values()} == {"goal ratio"}
    assert find_task("Hopper-v99").metric == "return" and find_task("maze", "return").metric == "return"
    METRICS["Hopper-v*"] = "success rate"
    try:
        assert find_task("Hopper-v99").metric == "success rate"
    finally:
        del METRICS["Hopper-v*"]
    with pytest.raises(ValueError, match="Hopper-v99 has no metric 'goal ratio': choose success rate or return"):
        find_task("Hopper-v99", "goal ratio")


@pytest.mark.parametrize("name", ["PointMaze_UMaze-v3", "FetchReach-v4", "AdroitHandDoor-v1", "Meta-World/MT1"])
def test_known_families_report_success(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gym.registry, name, EnvSpec(name, "nobody:Env"))  # their packages need not be installed
    assert find_task(name).metric == "success rate"


def test_demonstrations_without_successes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demos = collect(Push(1.0), "Hopper-v99", 2)
    assert demos.summary().success is None and demos[0].success is None and "terminated" in repr(demos[0])
    save_demos(demos, tmp_path / "demos.npz")
    with pytest.raises(ValueError, match="do not report success"):
        edit_demos(tmp_path / "demos.npz", keep="successes")
    main(["demos", "info", str(tmp_path / "demos.npz")])
    assert "%" not in capsys.readouterr().out
