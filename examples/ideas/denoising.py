"""A denoising predictor of your own: it sees a state with noise, and predicts the clean future beside it.

The package's own is `learned(noise=1)`; this one draws noise along directions in which demonstrators really moved.
"""

from dataclasses import dataclass

import torch

from pidm_nav import Learned, evaluate, load_demos, register, train


@register
@dataclass(eq=False)
class Denoising(Learned):
    name = "denoising"
    distance: float = 2.0  # Length of the displacement, in demonstrated steps, at most.

    def loss(self, states, futures):
        other = torch.randperm(len(states), generator=self.generator)
        far = self.distance * (2 * torch.rand(len(states), 1, generator=self.generator) - 1)
        return super().loss(states + far * (futures - states)[other], futures)

    def learn(self, dataset):
        self.generator = torch.Generator().manual_seed(self.seed)
        super().learn(dataset)
        del self.generator


if __name__ == "__main__":
    demos = load_demos("zigzag/human-like").sample(5, seed=0)
    for predictor in ("learned", Denoising()):
        agent = train("delta-pidm", demos, predictor=predictor, progress=False)
        print(predictor, evaluate(agent, "zigzag", 20))
