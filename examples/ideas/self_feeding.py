"""A predictor that feeds its own prediction back: it remembers where it wanted to be, and continues from there."""

from dataclasses import dataclass

import numpy as np

from pidm_nav import Learned, evaluate, load_demos, register, train


@register
@dataclass(eq=False)
class SelfFeeding(Learned):
    name = "self-feeding"
    trust: float = 0.5  # Weight of the last prediction beside the observed state.

    def predict(self, states, memory=None, episode_start=None):
        if memory is None:
            memory = states
        starts = np.zeros(len(states), bool) if episode_start is None else episode_start
        believed = np.where(starts[:, None], states, self.trust * memory + (1 - self.trust) * states)
        believed[:, self.flags] = states[:, self.flags]  # goals are reached or not, whatever was predicted
        futures, _ = super().predict(believed.astype(np.float32))
        return futures, futures


if __name__ == "__main__":
    demos = load_demos("zigzag/human-like").sample(5, seed=0)
    for trust in (0.0, 0.5):
        agent = train("delta-pidm", demos, predictor=SelfFeeding(trust=trust, steps=1000), progress=False)
        print(f"trust {trust}:", evaluate(agent, "zigzag", 20))
