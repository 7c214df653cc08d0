"""Action spaces: continuous actions, regressed through tanh, and discrete actions, classified by logits."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from pidm_nav.agents.networks import Scale

Actions = NDArray[Any]


class BoxActions(nn.Module):
    """Continuous actions (A,): network outputs and targets in [-1, 1], and an l1 or squared loss."""

    def __init__(self, space: spaces.Box, loss: Literal["l1", "mse"] = "mse") -> None:
        super().__init__()
        if not space.is_bounded() or len(space.shape) != 1:
            raise ValueError(f"actions need one dimension and finite bounds, not {space}: wrap the environment")
        self.space, self.scale, self.squash = space, Scale(space), True
        self.size = int(space.shape[0])  # of the network output per action
        self.loss_fn = nn.functional.l1_loss if loss == "l1" else nn.functional.mse_loss

    def encode(self, actions: Actions) -> Tensor:
        """Return targets (..., A) for recorded actions (..., A)."""
        inside = np.clip(actions, self.space.low, self.space.high)
        targets: Tensor = self.scale(torch.tensor(inside, device=self.scale.center.device))
        return targets

    def distance(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss (...) of each action."""
        return self.loss_fn(outputs, targets, reduction="none").mean(dim=-1)

    def as_targets(self, outputs: Tensor) -> Tensor:
        """Return network outputs as targets for another network."""
        return outputs

    def decode(self, outputs: Tensor) -> Actions:
        """Return the actions (..., A) for network outputs."""
        return np.asarray(self.scale.inverse(outputs).cpu().numpy())


class DiscreteActions(nn.Module):
    """Discrete actions, recorded as one integer each: outputs are logits, and the loss is cross-entropy."""

    def __init__(self, space: spaces.Discrete) -> None:
        super().__init__()
        self.space, self.size, self.squash = space, int(space.n), False
        self.register_buffer("choices", torch.eye(self.size), persistent=False)

    choices: Tensor

    def encode(self, actions: Actions) -> Tensor:
        """Return one-hot targets (..., n) for recorded actions (..., 1)."""
        index = np.asarray(actions)[..., 0].astype(np.int64) - int(self.space.start)
        if index.size and not (index.min() >= 0 and index.max() < self.size):
            raise ValueError(f"an action is not one of the {self.size} actions of {self.space}: check the data")
        return self.choices[torch.as_tensor(index, device=self.choices.device)]

    def distance(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the cross-entropy (...) of each action."""
        return -(outputs.log_softmax(dim=-1) * targets).sum(dim=-1)

    def as_targets(self, outputs: Tensor) -> Tensor:
        """Return the probabilities for network outputs, as targets for another network."""
        return outputs.softmax(dim=-1)

    def decode(self, outputs: Tensor) -> Actions:
        """Return the most likely actions (..., 1)."""
        best = outputs.argmax(dim=-1, keepdim=True).cpu().numpy() + int(self.space.start)
        return np.asarray(best, dtype=np.float32)


def make_actions(space: spaces.Space[Any], loss: Literal["l1", "mse"] = "mse") -> BoxActions | DiscreteActions:
    """Return the encoding of an action space."""
    if isinstance(space, spaces.Discrete):
        return DiscreteActions(space)
    if isinstance(space, spaces.Box):
        return BoxActions(space, loss)
    raise ValueError(f"agents take Box or Discrete actions, not {space}: wrap the environment")
