"""Train the agents that come with the package, and write the card that says what they reach.

    python scripts/make_agents.py              writes agents/data/TASK/AGENT and agents/data/card.json
    python scripts/make_agents.py --agents bc  trains only these again

They are trained with the preset fast on all of the package's own human-like demonstrations, and evaluated on episodes
that are none of the demonstrations. The same version of torch gives the same weights.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from pidm_nav import PAPER_TASKS, __version__, evaluate, load_demos, train
from pidm_nav.files import write_json
from pidm_nav.seeds import TEST
from pidm_nav.statistics import estimate_mean

DATA = Path(__file__).parents[1] / "agents" / "data"
SEED, EPISODES = 0, 50
AGENTS = ("bc", "pidm", "delta-pidm")


def make(task: str, agent: str) -> dict[str, Any]:
    """Train an agent, write it, and return its part of the card."""
    source = f"{task}/human-like"
    demos, began = load_demos(source), time.process_time()
    trained = train(agent, demos, "fast", seed=SEED)
    seconds = time.process_time() - began
    trained.save(DATA / task / agent)
    result = evaluate(trained, task, EPISODES)
    assert result.goal_ratio is not None and result.success is not None
    scores = {"goal ratio": result.goal_ratio, "success": result.success.astype(float)}
    estimates = {name: estimate_mean(each, bounds=(0, 1)) for name, each in scores.items()}
    return {
        "task": task,
        "agent": agent,
        "demos": source,
        "episodes": len(demos),
        "seed": SEED,
        **{name: [each.value, each.low, each.high] for name, each in estimates.items()},
        "rollouts": EPISODES,
        "first_seed": TEST.start,
        "seconds": round(seconds, 1),  # of one core
        "version": __version__,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train the agents that come with the package.")
    parser.add_argument("--agents", nargs="+", choices=AGENTS, default=AGENTS)
    chosen = parser.parse_args().agents
    path = DATA / "card.json"
    cards = json.loads(path.read_text("utf-8")) if path.exists() else {}
    for task in PAPER_TASKS:
        for agent in chosen:
            cards[f"{task}/{agent}"] = made = make(task, agent)
            print(f"{task}/{agent}: goal ratio {made['goal ratio'][0]:.3f}, {made['seconds']} s", flush=True)
    names = [f"{task}/{agent}" for task in PAPER_TASKS for agent in AGENTS]
    write_json(path, {name: cards[name] for name in names if name in cards}, indent=1)
    print(f"{sum(each.stat().st_size for each in DATA.rglob('*') if each.is_file()) / 1e6:.1f} MB in all")
