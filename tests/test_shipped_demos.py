"""The demonstrations that come with the package are what the environment does today, on this CPU and on others."""

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from pidm_nav import NavVectorEnv
from pidm_nav.demos.collect import collect
from pidm_nav.demos.edit import edit_demos
from pidm_nav.demos.experts.astar import AStarExpert
from pidm_nav.demos.experts.humanlike import HumanLikePlayer
from pidm_nav.demos.formats.npz import load_demos, save_demos
from pidm_nav.demos.replay import check_demos
from pidm_nav.tasks import PAPER_TASKS


def episode_hash() -> str:
    """Return a hash of long episodes with large noise, and of what both experts do in every task."""
    envs = NavVectorEnv(num_envs=64, task="maze", noise_std=0.5, clip_noise=False, random_goals=True)
    hashed = sha256(envs.reset(seed=0)[0].tobytes())
    for _ in range(600):
        hashed.update(envs.step(np.full((64, 2), 0.3))[0].tobytes())
    for task in PAPER_TASKS:
        for expert in (AStarExpert(task), HumanLikePlayer(task)):
            for episode in collect(expert, task, 4, seed=900):
                hashed.update(episode.observations.tobytes() + episode.actions.tobytes())
    return hashed.hexdigest()


def replay_all() -> None:
    """Check every file that comes with the package."""
    for task in PAPER_TASKS:
        for kind in ("astar", "human-like"):
            dataset = load_demos(f"{task}/{kind}")
            found = check_demos(dataset)
            assert len(dataset) == found.resimulated == 50
            assert not found.mismatches, f"{task}/{kind}: {found.mismatches[:3]}: run scripts/make_demos.py"
            assert dataset.summary().success == 1.0


def test_every_episode_replays_bitwise_identical() -> None:
    """A change of the physics, the noise or the seeding must remake them: scripts/make_demos.py."""
    replay_all()


@pytest.mark.thorough
def test_another_cpu_gives_the_same_episodes() -> None:
    """NumPy and the C library without this CPU's vector instructions stand in for an older CPU."""
    found = np.show_config(mode="dicts")["SIMD Extensions"]["found"]
    if not found:
        pytest.skip("NumPy uses nothing here that another CPU could lack")
    older = {
        "NPY_DISABLE_CPU_FEATURES": " ".join(found),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-AVX2_Usable,-FMA_Usable",
    }
    code = "from test_shipped_demos import *; replay_all(); print(episode_hash())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parent,
        env={**os.environ, **older},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == episode_hash()


def test_they_can_be_merged_with_a_users_own(tmp_path: Path) -> None:
    """Both are made with the environment's defaults."""
    save_demos(collect(AStarExpert("zigzag"), "zigzag", 2, seed=5), tmp_path / "mine.npz")
    assert len(edit_demos("zigzag/human-like", merge=[tmp_path / "mine.npz"])) == 52
