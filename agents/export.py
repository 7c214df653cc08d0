"""ONNX export: an agent as one file for onnxruntime, without torch and this package.

Inputs and outputs are batches of any size N. The memory of the predictor `follow` is an input and an output:

    observation    (N, D) float32    raw, as for `predict`
    memory         (N, 2) int64      zeros at first, then `next_memory` of the last call
    episode_start  (N,) bool         True for rows that begin an episode, as at the first call
    action         (N, A) float32, or (N,) int64 where actions are discrete
"""

from __future__ import annotations

import copy
import io
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor, nn

from pidm_nav.agents.agent import Agent
from pidm_nav.agents.bc import BC
from pidm_nav.agents.learned import Learned
from pidm_nav.agents.pidm import PIDM
from pidm_nav.agents.predictors import Follow, Lookup, Nearest, Predictor
from pidm_nav.files import write_bytes
from pidm_nav.version import __version__


@torch.no_grad()
def to_onnx(agent: Agent, path: str | Path) -> Path:
    """Export an agent to an ONNX file, and return the file's path."""
    module = ExportedAgent(copy.deepcopy(agent).cpu()).eval()
    try:
        import onnx
    except ImportError:
        raise ModuleNotFoundError("an export needs the package onnx: pip install 'pidm-nav[onnx]'") from None
    inputs: dict[str, Tensor] = {"observation": torch.zeros(2, agent.state_size)}
    outputs = ["action"]
    if isinstance(module.future, FollowedFuture):
        inputs |= {"memory": torch.zeros(2, 2, dtype=torch.int64), "episode_start": torch.ones(2, dtype=torch.bool)}
        outputs.append("next_memory")
    content: Any = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of this exporter as legacy; the other one needs onnxscript
        torch.onnx.export(
            module,
            tuple(inputs.values()),
            content,
            input_names=list(inputs),
            output_names=outputs,
            dynamic_axes={name: {0: "batch"} for name in (*inputs, *outputs)},
            dynamo=False,
        )
    model = onnx.load_model_from_string(content.getvalue())
    task, arguments = (agent.description.get(name) for name in ("task", "env_kwargs"))
    about = {"agent": agent.name, "task": str(task), "env_kwargs": json.dumps(arguments), "version": __version__}
    onnx.helper.set_model_props(model, about)
    write_bytes(path, model.SerializeToString())
    return Path(path)


class ExportedAgent(nn.Module):
    """`predict` in torch operations only."""

    def __init__(self, agent: Any) -> None:
        super().__init__()
        if type(agent).act not in (BC.act, PIDM.act):
            raise ValueError(f"{agent.name} cannot be exported to ONNX: bc, corrective-bc, pidm and delta-pidm can")
        if agent.vision is not None:
            raise ValueError(f"this {agent.name} observes images: only agents of states can be exported to ONNX")
        self.agent, self.future = agent, None
        if isinstance(agent, PIDM):
            kind = FUTURES.get(type(agent.predictor))
            if kind is None:
                known = ", ".join(each.name for each in FUTURES)
                raise ValueError(
                    f"the predictor {agent.predictor.name} cannot be exported to ONNX: train with one of {known}"
                )
            self.future = kind(agent.predictor)

    def forward(self, observation: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        """Return the actions and, if there is one, the memory for the next call."""
        agent, now, rest = self.agent, self.agent.scale(observation), list[Tensor]()
        if self.future is None:
            outputs = agent.outputs(now)
        else:
            future, *rest = self.future(observation, *memory)
            outputs = agent.idm(now, agent.scale(future), agent.config.horizons.index(agent.horizon))
        space = agent.action_space
        if isinstance(space, spaces.Discrete):
            return (outputs.argmax(dim=1) + int(space.start), *rest)
        actions = agent.actions.scale.inverse(outputs)
        low, high = torch.tensor(space.low), torch.tensor(space.high)
        return (torch.minimum(torch.maximum(actions, low), high), *rest)


class LearnedFuture(nn.Module):
    """`Learned` with rounded flags."""

    def __init__(self, predictor: Learned) -> None:
        super().__init__()
        self.predictor = predictor

    def forward(self, states: Tensor) -> tuple[Tensor, ...]:
        """Return the futures (N, D) of raw states (N, D)."""
        scale = self.predictor.scale
        return (rounded_flags(scale.inverse(self.predictor(scale(states))), self.predictor),)


class NearestFuture(nn.Module):
    """`Nearest` by brute force, as KD-trees cannot be exported."""

    def __init__(self, predictor: Nearest) -> None:
        super().__init__()
        self.predictor, index = predictor, predictor.index
        stored = predictor.observations[predictor.followed]
        # of equal states, such as common starts, keep the one that the tree returns
        rows = np.unique(index.query(stored)[0][:, 0])
        reached, points = index.measured(stored[rows])
        self.rows, self.num_reached, self.points = (
            torch.tensor(each) for each in (predictor.followed[rows], reached, points)
        )
        self.width = torch.tensor(index.width[index.features])
        self.features, self.flags, self.groups = map(torch.tensor, (index.features, index.flags, index.groups))
        self.observations, self.last = torch.tensor(predictor.observations), torch.tensor(predictor.last)

    def measured(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the numbers of goals reached (N,), and the scaled features (N, F) for distances."""
        return (states[:, self.flags] > 0.5).sum(dim=1), states[:, self.features].double() / self.width

    def distance(self, difference: Tensor) -> Tensor:
        """Return the lengths (...) of differences (..., F)."""
        return difference.abs().sum(-1) if self.predictor.index.order == 1 else difference.square().sum(-1).sqrt()

    def nearest(self, states: Tensor) -> Tensor:
        """Return the rows (N,) of the nearest observations with the same number of goals reached."""
        reached, points = self.measured(states)
        group = self.groups[(reached[:, None] - self.groups).abs().argmin(dim=1)]
        away = self.distance(points[:, None] - self.points)
        return self.rows[torch.where(self.num_reached == group[:, None], away, torch.inf).argmin(dim=1)]

    def following(self, rows: Tensor, states: Tensor) -> Tensor:
        """Return the futures (N, D) of rows, with `pull`."""
        futures = self.observations[torch.minimum(rows + self.predictor.horizon, self.last[rows])]
        if self.predictor.pull == 1:
            return futures
        return rounded_flags(futures + (1 - self.predictor.pull) * (states - self.observations[rows]), self.predictor)

    def forward(self, states: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        """Return the futures (N, D) of raw states (N, D)."""
        return (self.following(self.nearest(states), states),)


class FollowedFuture(NearestFuture):
    """`Follow`, with the same steps as its `locate`."""

    def __init__(self, predictor: Follow) -> None:
        super().__init__(predictor)
        self.all_reached, self.all_points, self.progress = map(
            torch.tensor, (predictor.reached, predictor.points, predictor.progress)
        )
        self.window, self.rms_step = predictor.window, predictor.rms_step

    def forward(self, states: Tensor, *memory: Tensor) -> tuple[Tensor, ...]:
        """Return the futures (N, D) of raw states (N, D), and the memory for the next call."""
        last_memory, episode_start = memory
        nearest = self.nearest(states)
        begun = torch.stack([nearest, torch.zeros_like(nearest)], dim=1)
        before, waited = torch.where(episode_start[:, None], begun, last_memory).unbind(dim=1)
        reached, points = self.measured(states)
        end = self.last[before] - 1
        touched = (self.progress < (self.last[before] * (len(self.flags) + 1) + reached)[:, None]).sum(dim=1)
        place = torch.minimum(torch.maximum(before, touched), end)
        onward = torch.minimum(place + 1, end)
        place = torch.where((waited >= self.window) & (self.all_reached[onward] <= reached), onward, place)
        ahead = torch.minimum(place[:, None] + torch.arange(self.window, -1, -1), end[:, None])
        away = self.distance(self.all_points[ahead] - points[:, None])
        away = torch.where(self.all_reached[ahead] > reached[:, None], away + 1e9, away)
        best = away.argmin(dim=1, keepdim=True)
        place, own = ahead.gather(1, best)[:, 0], away.gather(1, best)[:, 0]
        other = self.distance(self.all_points[nearest] - points) + self.rms_step
        place = torch.where((self.last[nearest] != self.last[place]) & (other < own), nearest, place)
        next_memory = torch.stack([place, torch.where(place == before, waited + 1, 0)], dim=1)
        return self.following(place, states), next_memory


def rounded_flags(futures: Tensor, predictor: Learned | Lookup) -> Tensor:
    """Return futures whose flags of reached goals are 0 or 1."""
    is_flag = torch.zeros(futures.shape[1], dtype=torch.bool)
    is_flag[torch.tensor(predictor.flags)] = True
    return torch.where(is_flag, futures.round().clamp(0, 1), futures)


FUTURES: dict[type[Predictor], Any] = {Nearest: NearestFuture, Follow: FollowedFuture, Learned: LearnedFuture}
