"""The demonstrations that come with the package are what the environment does today."""

import pytest

from pidm_nav.demos.formats.npz import load_demos
from pidm_nav.demos.replay import check_demos
from pidm_nav.tasks import PAPER_TASKS


@pytest.mark.parametrize("kind", ["astar", "human-like"])
@pytest.mark.parametrize("task", PAPER_TASKS)
def test_every_episode_is_simulated_again_to_the_bit(task: str, kind: str) -> None:
    """A change of the physics, the noise or the seeding must remake them: scripts/make_demos.py."""
    dataset = load_demos(f"{task}/{kind}")
    found = check_demos(dataset)
    assert len(dataset) == found.resimulated == 50
    assert not found.mismatches
    assert dataset.summary().success == 1.0
