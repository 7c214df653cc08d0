"""A sweep on Ray: agents, numbers of demonstrations and seeds are independent jobs with one result file each.

Without a cluster, a local Ray is started. Run it again, and only what is missing is done. On the command line,
`pidm-nav sweep --engine ray` does the same, and `pidm-nav report` draws the figures.

Needs the extra:  pip install "pidm-nav[cluster]"
Run it:  python examples/11_ray_sweep.py [--fast] [--out results] [--address auto]
"""

import argparse
from functools import partial

from pidm_nav.console import print_table
from pidm_nav.experiments.engines import run_ray
from pidm_nav.experiments.results import JobResult
from pidm_nav.experiments.sweep import Sweep, run_sweep


def tell(result: JobResult) -> None:
    print(f"  {result.cell}: {result.error or result.score}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fast", action="store_true", help="run two jobs with a very short training")
    parser.add_argument("--out", default="results", help="folder for the results")
    parser.add_argument("--address", default="local", help="address of a running cluster, or auto")
    arguments = parser.parse_args()

    sweep = Sweep(
        tasks=("four-room",),
        demos_from="human-like",
        agents=("bc", "pidm"),
        num_demos=(2,) if arguments.fast else (1, 2, 5, 10),
        seeds=1 if arguments.fast else 5,
        steps=20 if arguments.fast else None,
        episodes=5 if arguments.fast else 50,
    )
    runner = partial(run_ray, workers=1 if arguments.fast else None, address=arguments.address)
    results = run_sweep(sweep, arguments.out, runner, on_result=tell)
    rows = []
    for size in sweep.num_demos:
        row: dict[str, object] = {"demonstrations": size}
        for agent in sweep.agents:
            scores = [result.score for cell, result in results.items() if (cell.demos, cell.agent) == (size, agent)]
            row[agent] = f"{sum(scores) / len(scores):.2f}" if scores else "failed"
        rows.append(row)
    print_table(rows, title="Goals reached, mean over seeds")
    print(f"results are in {arguments.out}")


if __name__ == "__main__":
    main()
