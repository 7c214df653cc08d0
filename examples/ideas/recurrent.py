"""Recurrent BC of your own: an LSTM over the states so far; the package's GRU agents are recurrent-bc and -pidm."""

import numpy as np
import torch
from torch import nn

from pidm_nav import Agent, Sampling, evaluate, load_demos, register, train


@register
class LSTMBC(Agent):
    name = "lstm-bc"
    sampling = Sampling(length=16)

    def build(self, encoder):
        self.encoder, size = self.make_encoder(encoder, norm=False)
        self.lstm = nn.LSTM(size, 64, batch_first=True)
        self.head = self.make_head(64)

    def loss(self, batch, rng):
        outputs = self.head(self.lstm(self.encoder(batch.now_states))[0])
        return {"bc": batch.mean(self.actions.distance(outputs, batch.action))}

    def act(self, states, memory, episode_start):
        memory = np.zeros((2, len(states), 64), np.float32) if memory is None else memory.copy()
        memory[:, episode_start] = 0
        inputs = self.encoder(self.scaled(states))[:, None]
        seen, memory = self.lstm(inputs, tuple(torch.as_tensor(part)[None] for part in memory))
        return self.actions.decode(self.head(seen[:, 0])), np.stack([part[0].numpy() for part in memory])


if __name__ == "__main__":
    demos = load_demos("zigzag/human-like").sample(5, seed=0)
    agent = train(LSTMBC, demos, steps=600, encoder_sizes=(128, 128), batch_size=512, progress=False)
    print(evaluate(agent, "zigzag", 20))
