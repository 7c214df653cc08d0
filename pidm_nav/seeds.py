"""Disjoint ranges of environment seeds: no agent is tested in an episode that it was trained, tuned or corrected in.

A seed of an environment decides where an episode starts and all of its noise. Functions that make episodes take the
seed of the first one, and by default it is the start of one of these ranges:

| range            | first seed | episodes                                                              |
|------------------|------------|-----------------------------------------------------------------------|
| `DEMONSTRATIONS` |          0 | recorded by people and experts; the demonstrations that ship are 0-49 |
| `VALIDATION`     |    500,000 | rollouts during training                                              |
| `TEST`           |  1,000,000 | reported scores: `evaluate`, sweeps and the quickstart's animation    |
| `DAGGER`         |  1,500,000 | the student's rollouts that an expert labels                          |
| `PLAY`           |  2,000,000 | random actions for inverse dynamics models                            |

Seeds of players, weights and batches are other seeds, which never meet those of environments.
"""

from __future__ import annotations

from pidm_nav.limits import MAX_SEED

DEMONSTRATIONS = range(500_000)
VALIDATION = range(500_000, 1_000_000)
TEST = range(1_000_000, 1_500_000)
DAGGER = range(1_500_000, 2_000_000)
PLAY = range(2_000_000, MAX_SEED)


def play_seed(training_seed: int, steps: int) -> int:
    """Return the first seed of the play for a training run: no two training seeds share an episode of `steps`."""
    return PLAY[training_seed * steps % len(PLAY)]
