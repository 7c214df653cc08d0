"""A sweep on Ray: agents, numbers of demonstrations and seeds as independent jobs, one result file each.

Without a cluster a local Ray is started. Run it again and only what is missing is done. The command line's
`pidm-nav sweep --engine ray` does the same, and `pidm-nav report` draws the figures.

Needs the extra:  pip install "pidm-nav[cluster]"
Run it:  python examples/11_ray_sweep.py [--fast] [--out results] [--address auto]
"""

import argparse
from functools import partial

from rich.console import Console
from rich.table import Table

from pidm_nav.demos import load_demos
from pidm_nav.experiments.engines import Outcome, run_ray
from pidm_nav.experiments.results import Cell
from pidm_nav.experiments.sweep import Sweep, run_sweep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="two jobs with a very short training")
    parser.add_argument("--out", default="results")
    parser.add_argument("--address", default="local", help="of a running cluster, or auto")
    arguments = parser.parse_args()

    sweep = Sweep(
        datasets={"four-room": load_demos("four-room/human-like")},
        agents=("bc", "pidm"),
        sizes=(2,) if arguments.fast else (1, 2, 5, 10),
        seeds=1 if arguments.fast else 5,
        demos_from="human-like",
        steps=20 if arguments.fast else None,
        episodes=5 if arguments.fast else 50,
    )

    def tell(cell: Cell, outcome: Outcome) -> None:
        print(f"  {cell}: {outcome.get('error') or outcome['checkpoints'][-1]['goal_ratio']}")

    engine = partial(run_ray, workers=1 if arguments.fast else None, address=arguments.address)
    results = run_sweep(sweep, arguments.out, engine, on_result=tell)
    table = Table("demonstrations", *sweep.agents, title="goals reached, mean over seeds")
    for size in sweep.sizes:
        row = []
        for agent in sweep.agents:
            cells = [results[cell] for cell in results if (cell.demos, cell.agent) == (size, agent)]
            scores = [outcome["checkpoints"][-1]["goal_ratio"] for outcome in cells]
            row.append(f"{sum(scores) / len(scores):.2f}" if scores else "failed")
        table.add_row(str(size), *row)
    Console().print(table)
    print(f"results are in {arguments.out}")


if __name__ == "__main__":
    main()
