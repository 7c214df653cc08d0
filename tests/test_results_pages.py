"""The page about one demonstration: its tables say what results.csv holds, and its script can read that file."""

import importlib.util
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[1]


def test_the_tables_of_the_page_are_those_of_the_record() -> None:
    spec = importlib.util.spec_from_file_location("run_one_demo", ROOT / "scripts" / "run_one_demo.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (ROOT / "docs" / "results" / "one_demo" / "README.md").read_text(encoding="utf-8")
    record = script.read_record(ROOT / "docs" / "results" / "one_demo" / "results.csv")
    assert record.keys() == {"human", "astar"}
    for demonstrator, done in record.items():
        planned = {(agent, size) for agents, sizes in script.PARTS[demonstrator] for agent in agents for size in sizes}
        assert {(cell.agent, cell.demos) for cell in done} == planned
        for agent, size in planned:
            shown = []
            for task in script.PAPER_TASKS:
                scores = [
                    r.score for cell, r in done.items() if (cell.agent, cell.demos, cell.task) == (agent, size, task)
                ]
                assert len(scores) == 5
                shown.append(f"{np.mean(scores):.3f} ({min(scores):.2f})")
            assert f"| {size} | {' | '.join(shown)} |" in page, (demonstrator, agent, size)
