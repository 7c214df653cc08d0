"""How many samples does knowing the future save? Predicted by Theorem 2, and measured.

The expert acts a = 0.7 s + noise in state s, and the next state is s' = 0.9 s + control a + noise. The more
control the action has over the next state, the more s' tells about a. Behavior cloning learns the 0.7 from
(s, a), an inverse dynamics model from (s, a, s'). The theory says how many more samples cloning needs for the
same error: the ratio of the two Fisher informations. We count instead.

Run it:  python examples/12_theory.py [--fast] [--out theory_predicted_vs_measured.png]
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from pidm_nav.theory.gaussian import LinearGaussian
from pidm_nav.theory.terms import measured_efficiency, sample_efficiency

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--fast", action="store_true", help="fewer datasets, wider error bars")
parser.add_argument("--out", type=Path, default=Path("theory_predicted_vs_measured.png"))
arguments = parser.parse_args()

rng = np.random.default_rng(0)
sizes = np.unique(np.geomspace(20, 1600, 60).astype(int))
controls = np.linspace(0, 2.2, 6 if arguments.fast else 9)
predicted, measured = [], []
for control in controls:
    problem = LinearGaussian(control=control)
    mse = 1 / (120 * problem.fisher()[1])  # the inverse dynamics model gets there with about 120 samples
    errors = problem.squared_errors(sizes, 1000 if arguments.fast else 8000, rng)
    predicted.append(sample_efficiency(problem.fisher(), mse))
    measured.append(measured_efficiency(sizes, *errors, mse))
    print(f"control {control:.2f}: predicted {predicted[-1]:.2f}, ", end="")
    print(f"measured {measured[-1].value:.2f} +- {measured[-1].error:.2f}")

figure = Figure(figsize=(10, 4.4), layout="constrained", dpi=150)
left, right = figure.subplots(1, 2)
left.loglog(sizes, errors[0].mean(0), color="#D55E00", label="behavior cloning")
left.loglog(sizes, errors[1].mean(0), color="#0072B2", label="inverse dynamics model")
left.axhline(mse, color="0.5", linestyle=":", label="the error both must reach")
left.set(xlabel="samples", ylabel="mean squared error of the parameter", title=f"At control {controls[-1]:.1f}")
fine = np.linspace(0, controls[-1], 100)
fisher = [LinearGaussian(control=control).fisher() for control in fine]
right.plot(fine, [idm / bc for bc, idm in fisher], color="0.5", label="predicted by Theorem 2")
values, bars = [m.value for m in measured], [2 * m.error for m in measured]
right.errorbar(controls, values, bars, fmt="o", color="#0072B2", capsize=3, label="measured, 2 standard errors")
right.set(xlabel="control of the action over the next state", ylabel="samples of BC for each of the IDM's")
right.set_title("What knowing the future saves")
for axes in (left, right):
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
figure.savefig(arguments.out)
print(f"wrote {arguments.out}")
