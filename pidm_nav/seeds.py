"""Disjoint ranges of environment seeds: no agent is tested on an episode of its training, tuning or DAgger data.

An environment's seed determines the start and the noise of an episode. Functions that make episodes take the seed of
the first one, by default the start of one of these ranges:

| range            | first seed | episodes                                                              |
|------------------|------------|-----------------------------------------------------------------------|
| `DEMONSTRATIONS` |          0 | recorded by people and experts; the demonstrations that ship are 0-49 |
| `VALIDATION`     |    500,000 | rollouts during training                                              |
| `TEST`           |  1,000,000 | reported scores: `evaluate`, sweeps and the quickstart's animation    |
| `DAGGER`         |  1,500,000 | the agent's rollouts that an expert labels                            |
| `RANDOM_PLAY`    |  2,000,000 | random actions for inverse dynamics models                            |

Seeds of experts, weights and batches are independent of environment seeds.
"""

from __future__ import annotations

from pidm_nav.limits import MAX_SEED

DEMONSTRATIONS = range(500_000)
VALIDATION = range(500_000, 1_000_000)
TEST = range(1_000_000, 1_500_000)
DAGGER = range(1_500_000, 2_000_000)
RANDOM_PLAY = range(2_000_000, MAX_SEED)


def random_play_seed(training_seed: int, steps: int) -> int:
    """Return the first seed of random play for a training run; different training seeds share no episode."""
    return RANDOM_PLAY[training_seed * steps % len(RANDOM_PLAY)]
