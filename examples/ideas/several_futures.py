"""Several futures at once: the inverse dynamics model sees where the demonstrator is 1, 3, 7 and 10 steps from now."""

import numpy as np
import torch

from pidm_nav import PIDM, Sampling, evaluate, load_demos, register, train

HORIZONS = (1, 3, 7, 10)


@register
class SeveralFutures(PIDM):
    name = "several-futures"
    title = "PIDM, 4 futures"

    def build(self, encoder):
        super().build(encoder)
        self.encoder, size = self.make_encoder(encoder)
        self.head = self.make_head(size * (1 + len(HORIZONS)))

    sampling = Sampling(horizons=HORIZONS, one_horizon=False)

    def outputs_for(self, now, futures):  # (N, D), (N, K, D)
        states = torch.cat([now[:, None], futures], dim=1)
        return self.head(self.encoder(states.flatten(0, 1)).view(len(now), -1))

    def loss(self, batch, rng):
        outputs = self.outputs_for(batch.now_states, batch.future_states)
        return {"idm": batch.mean(self.actions.distance(outputs, batch.action))}

    def act(self, states, memory, episode_start):
        rows, memory = self.predictor.locate(states, memory, episode_start)
        ahead = [np.minimum(rows + k, self.predictor.last[rows]) for k in HORIZONS]
        futures = torch.stack([self.scaled(self.predictor.observations[each]) for each in ahead], dim=1)
        return self.actions.decode(self.outputs_for(self.scaled(states), futures)), memory


if __name__ == "__main__":
    demos = load_demos("zigzag/human-like").sample(5, seed=0)
    print(evaluate(train(SeveralFutures, demos, progress=False), "zigzag", 20))
