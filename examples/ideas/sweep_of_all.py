"""A sweep of all ideas beside BC and PIDM, on this machine's cores or on Ray with a share of a GPU for each job."""

import argparse
from functools import partial
from pathlib import Path

from pidm_nav import load_plugin
from pidm_nav.experiments.engines import run_local, run_ray
from pidm_nav.experiments.recipes import Recipe
from pidm_nav.experiments.report import write_report
from pidm_nav.experiments.sweep import Sweep, run_sweep

for idea in ("mixed_futures", "several_futures", "recurrent", "self_feeding", "denoising"):
    load_plugin(Path(__file__).with_name(f"{idea}.py"))

AGENTS = {
    "bc": "bc",
    "pidm": "pidm",
    "several-futures": "several-futures",
    "lstm-bc": Recipe("lstm-bc", {"encoder_sizes": (64, 64), "batch_size": 256}),
    "mixed": Recipe("pidm", {"predictor": "mixed(k=5)"}),
    "self-feeding": Recipe("delta-pidm", {"predictor": "self-feeding(steps=500)"}),
    "denoising": Recipe("delta-pidm", {"predictor": "denoising(steps=500)"}),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--ray-gpus", type=float, help="share of a GPU per job, on Ray; 0 for none")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--out", default="sweep-of-ideas")
    given = parser.parse_args()
    sizes = {"num_demos": (1, 5), "seeds": 2, "episodes": 10, "checkpoint_fractions": (), "steps": given.steps}
    device = "cuda" if given.ray_gpus else "cpu"
    sweep = Sweep(agents=AGENTS, tasks=("zigzag",), device=device, **sizes)
    runner = run_local if given.ray_gpus is None else partial(run_ray, gpus_per_job=given.ray_gpus, address="local")
    run_sweep(sweep, given.out, runner, on_result=print)
    print("open", write_report([given.out], Path(given.out) / "report"))
