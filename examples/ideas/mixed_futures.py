"""Futures mixed from the k nearest demonstrated states, each weighted by a Gaussian of its distance.

pidm-nav train --plugin examples/ideas/mixed_futures.py --agent pidm --predictor "mixed(k=5)" --task zigzag
"""

from dataclasses import dataclass

import numpy as np

from pidm_nav import Nearest, evaluate, load_demos, register, train


@register
@dataclass(eq=False)
class Mixed(Nearest):
    name = "mixed"
    k: int = 3  # Number of neighbors.
    width: float = 10.0  # Standard deviation of the weights, in pixels.

    def predict(self, states, memory=None, episode_start=None):
        nearest, distances = self.index.query(states, min(self.k, len(self.followed)))
        weights = np.exp(-0.5 * ((distances - distances[:, :1]) / self.width) ** 2)
        futures = np.stack([self.following(self.followed[column], states) for column in nearest.T])
        mixed = np.einsum("nk,knd->nd", weights / weights.sum(axis=1, keepdims=True), futures).astype(np.float32)
        mixed[:, self.flags] = mixed[:, self.flags].round()  # a goal is reached or not
        return mixed, memory


if __name__ == "__main__":
    demos = load_demos("zigzag/human-like").sample(5, seed=0)
    for predictor in ("nearest", Mixed(k=5)):
        agent = train("pidm", demos, predictor=predictor, progress=False)
        print(predictor, evaluate(agent, "zigzag", 20))
