"""Fit: the training loop of `train` as an object, for custom loops.

    fit = Fit(agent, demos, TrainConfig(learning_rate=1e-3))
    for batch in fit.batches():
        fit.step(agent.loss(batch, fit.rng))
    fit.finish()

The same seed gives the same batches and weights. Batches, augmentation and torch's random numbers inside the loop
depend on the seed and the step alone, so an interrupted run resumes exactly.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Tensor, nn

from pidm_nav.agents.agent import Agent
from pidm_nav.agents.batches import Batch, Sampling, TrainingData, Trajectories
from pidm_nav.agents.config import TrainConfig
from pidm_nav.agents.networks import Adam, recompute_batchnorm
from pidm_nav.demos.dataset import DemoDataset

BLOCK = 256  # steps whose batches are drawn at once
BATCHNORM_ROWS = 4096  # states encoded at once to recompute batch norm


class Fit:
    """The state of a training run: an agent, its data as tensors, the optimizer and the number of steps taken."""

    def __init__(self, agent: Agent, data: DemoDataset | TrainingData, config: TrainConfig | None = None) -> None:
        self.agent, self.config = agent, config or agent.preset("fast").training
        self.data = TrainingData(data) if isinstance(data, DemoDataset) else data
        agent.prepare(self.data)
        self.trajectories = Trajectories(agent, self.data, self.config.window, self.config.shift)
        self.trajectories.futures = agent.predicted_futures(self.data)
        trained = {name: each for name, each in agent.named_parameters() if each.requires_grad}
        self.names, self.parameters = list(trained), list(trained.values())
        self.optimizer = Adam(self.parameters)
        self.average = [each.detach().clone() for each in self.parameters] if self.config.average else []
        self.steps = 0  # gradient steps taken
        self.rng = np.random.default_rng(self.config.seed)

    def batches(self) -> Iterator[Batch]:
        """Yield a batch for each remaining step, from passes over the data in random order."""
        config, data, sampling = self.config, self.trajectories, self.agent.sampling
        if not isinstance(sampling, Sampling):
            raise ValueError(f"sampling of {self.agent.name} is {sampling!r}: make it a Sampling, or a property")
        count, size = data.candidates(sampling, config.batch_size)
        order, block = torch.arange(count), -1
        seed_torch = torch.default_generator.manual_seed if data.last.is_cpu else torch.manual_seed  # 50 times as fast
        with torch.random.fork_rng(devices=[]):
            while self.parameters and self.steps < config.steps:
                step = self.steps
                if size < count and step // BLOCK != block:
                    block = step // BLOCK
                    generator = torch.Generator().manual_seed(config.seed * 1_000_003 + block)
                    passes = -(-BLOCK * size // count)
                    order = torch.cat([torch.randperm(count, generator=generator) for _ in range(passes)])
                first = step % BLOCK * size if size < count else 0
                chosen = order[first : first + size].to(data.last.device)
                own_seed = (config.seed * 1_000_003 + step) % 2**63
                self.rng = np.random.default_rng(own_seed)
                seed_torch(own_seed)  # for dropout and the like
                self.agent.train()
                yield data.batch(chosen, sampling, self.rng)

    def step(self, loss: Tensor | Mapping[str, Tensor]) -> Tensor:
        """Take one gradient step on a loss, or on the sum of its terms, and return its value before the step."""
        config = self.config
        total: Tensor = sum(loss.values(), torch.zeros(())) if isinstance(loss, Mapping) else loss
        total.backward()  # type: ignore[no-untyped-call]
        if config.gradient_clip is not None:
            foreach = self.parameters[0].is_cpu or None  # one pass on the CPU; on other devices torch chooses
            nn.utils.clip_grad_norm_(self.parameters, config.gradient_clip, foreach=foreach)
        self.optimizer.step(config.rate(self.steps))
        if self.average:  # the first decays are smaller, so that the initial weights do not linger
            weight = 1 - min(config.average, (1 + self.steps) / (10 + self.steps))
            torch._foreach_lerp_(self.average, list[Tensor](self.parameters), weight)
        self.steps += 1
        return total.detach()

    def finish(self) -> Agent:
        """Make the agent ready to act, and return it: averaged weights, recomputed batch norm, evaluation mode."""
        return self._finish(self.agent)

    def ready_copy(self) -> Agent:
        """Return a copy of the agent that is ready to act; training continues unaffected."""
        return self._finish(copy.deepcopy(self.agent))

    @torch.no_grad()
    def _finish(self, agent: Agent) -> Agent:
        parameters = dict(agent.named_parameters())
        for name, mean in zip(self.names, self.average, strict=False):  # there may be no averages
            parameters[name].copy_(mean)
        agent.eval()
        if self.config.recompute_batchnorm:
            table = self.trajectories.states_of(agent)
            for name, module in agent.named_modules():
                if name.rpartition(".")[2] == "encoder":  # by convention, the encoder of scaled states
                    try:
                        recompute_batchnorm(module, lambda: table.batches(BATCHNORM_ROWS))
                    except RuntimeError as error:
                        raise ValueError(
                            f"the batch norm of {name} cannot be recomputed over scaled states ({error}): give a "
                            "module with other inputs another name, or train with recompute_batchnorm=False"
                        ) from None
        agent.after_training(self.data)
        return agent

    def state(self) -> dict[str, Tensor]:
        """Return all tensors that further steps depend on."""
        tensors = {f"agent.{name}": tensor for name, tensor in self.agent.state_dict().items()}
        for index, own in enumerate(self.optimizer.state):
            tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in own.items()}
        tensors |= {f"average.{index}": tensor for index, tensor in enumerate(self.average)}
        return tensors | {"step": torch.tensor(self.steps)}

    def resume(self, tensors: Mapping[str, Tensor]) -> None:
        """Restore the tensors that `state` returned; tensors of another agent or run raise ValueError."""
        own = self.state()
        alike = {name: each.shape for name, each in tensors.items()} == {name: each.shape for name, each in own.items()}
        if not alike or not 0 < tensors["step"] <= self.config.steps:
            raise ValueError("the saved state is of another agent or training run: delete it")
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(tensors[name])
        self.steps = int(own["step"])
