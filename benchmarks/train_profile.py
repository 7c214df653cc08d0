"""Where the processor time of a training goes, next to what the machine's matrix products allow.

    python benchmarks/train_profile.py [--steps 500]

For each agent and preset: processor time per gradient step, the time that its matrix products would take at the peak
measured in the same run (products of 1,024 x 1,024 matrices, on one thread), and which part of a step is spent in the
forward pass, the backward pass, the optimizer and everything else, by torch's profiler.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from pidm_nav import load_demos, train
from pidm_nav.agents.networks import Adam
from pidm_nav.console import print_table

CASES = (("bc", "fast"), ("pidm", "fast"), ("chunking", "fast"), ("diffusion", "fast"), ("bc", "paper-fast"))
PARTS = {"backward": "autograd::engine::evaluate_function: ", "optimizer": "Adam.step"}


def matrix_peak(size: int = 1024, repeats: int = 20) -> float:
    """Return floating point operations per second in products of square matrices."""
    matrix = torch.randn(size, size)
    matrix @ matrix
    began = time.process_time()
    for _ in range(repeats):
        matrix @ matrix
    return repeats * 2 * size**3 / (time.process_time() - began)


def measure(agent: str, preset: str, steps: int, peak: float) -> dict[str, Any]:
    """Return a row of the table."""
    dataset = load_demos("maze/human-like").sample(5, seed=0)

    def run(count: int) -> float:
        began = time.process_time()
        train(agent, dataset, preset, steps=count, progress=False)
        return time.process_time() - began

    run(10)
    each = (run(steps) - run(1)) / (steps - 1)
    operations = []
    for count in (1, 2):
        with FlopCounterMode(display=False) as counter:
            run(count)
        operations.append(counter.get_total_flops())
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        run(200)
    events = profiled.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    shares = {
        part: sum(event.cpu_time_total for event in events if event.key.startswith(prefix)) / total
        for part, prefix in PARTS.items()
    }
    floor = (operations[1] - operations[0]) / peak
    row = {"agent": f"{agent}, {preset}", "ms per step": f"{1e3 * each:.2f}", "at the peak": f"{1e3 * floor:.2f}"}
    row |= {part: f"{share:.0%}" for part, share in shares.items()}
    return {**row, "forward and other": f"{1 - sum(shares.values()):.0%}"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500, help="gradient steps that are timed")
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    Adam.step = record_function("Adam.step")(Adam.step)  # type: ignore[method-assign]
    peak = matrix_peak()
    print(f"matrix products at their peak: {peak / 1e9:.0f} billion operations per second on one thread")
    rows = [measure(*case, steps, peak) for case in CASES]
    print_table(rows, {name: name for name in rows[0]}, title="processor time of a gradient step")


if __name__ == "__main__":
    main()
