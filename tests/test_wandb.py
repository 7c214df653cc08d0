"""`--wandb` with the real client, which writes its runs to files while it is offline."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pidm_nav.cli import main


def logged(folder: Path) -> list[bytes]:
    """Return the files of all runs, which hold names and values one after the other."""
    return [path.read_bytes() for path in sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))]


def command(*words: str) -> None:
    """Run a command in a process of its own: workers that other tests left do not know that they are offline."""
    subprocess.run([sys.executable, "-m", "pidm_nav.cli", *words], check=True)


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("wandb", reason="wandb is not installed")
    for name, value in {"WANDB_MODE": "offline", "WANDB_DIR": str(tmp_path), "WANDB_SILENT": "true"}.items():
        monkeypatch.setenv(name, value)
    return tmp_path


@pytest.mark.slow
def test_a_training_run_is_logged(offline: Path) -> None:
    out = offline / "my-run"
    options = "--agent bc --task maze --num-demos 1 --steps 20 --log-every 10 --eval-episodes 2 --wandb my-project"
    command("train", *options.split(), "--out", str(out))
    (content,) = logged(offline)
    for text in (b"my-project", b"my-run", b"loss", b"goal_ratio", b"learning_rate", b"num_demos"):
        assert text in content, text


@pytest.mark.slow
def test_each_job_of_a_sweep_is_a_run(offline: Path) -> None:
    options = "--tasks four-room --agents bc --num-demos 1,2 --seeds 1 --steps 10 --episodes 2 --jobs 1 --wandb p"
    command("sweep", *options.split(), "--out", str(offline / "results"))
    runs = logged(offline)
    assert len(runs) == 2
    assert all(b"goal_ratio" in content and b"loss" in content for content in runs)


@pytest.mark.parametrize("words", ["train --task maze", "sweep --tasks maze"])
def test_a_missing_client_is_told(words: str, tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(SystemExit) as ended:
        main([*words.split(), "--wandb", "p", "--out", str(tmp_path / "x")])
    told = capsys.readouterr().err
    assert ended.value.code == 2 and "pip install wandb" in told and told.count("\n") == 1
    assert not (tmp_path / "x").exists()
