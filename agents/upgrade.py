"""Agents of format 1, whose PIDM was one class with flat settings, as the present version saves them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from pidm_nav.agents.idm import DeltaIDM
from pidm_nav.agents.images import stack_history
from pidm_nav.agents.registry import describe

DEFAULTS = {"distance": "l2", "idm": "states", "state_noise": 0.1, "change_noise": 0.3, "state_swap": 0.5}
RENAMED = {
    "encoder.": "idm.encoder.",
    "head.": "idm.head.",
    "usual_change": "idm.delta_rms",
    "spread": "idm.state_std",
    "visible": "idm.state_mask",
    "predictor.change": "predictor.delta_rms",
}


def upgrade(agent: str, config: dict[str, Any], tensors: dict[str, Tensor]) -> tuple[str, dict[str, Any]]:
    """Rename an agent's tensors in place, and return the present name and settings of the agent."""
    config = dict(config)
    _rename(tensors, {"action_scale.": "actions.scale.", "memory.actions": "memory.demo_actions"})
    if agent != "pidm":
        return agent, config
    config = {"horizons": [1], "act_horizon": None, "predictor": "nearest", "history": [0, 6, 12], **config}
    old = {name: config.pop(name, default) for name, default in DEFAULTS.items()}
    if old["distance"] != "l2" and config["predictor"] in ("nearest", "follow"):
        config["predictor"] += f"(distance='{old['distance']}')"
    config["idm"] = "state"
    if old["idm"] == "change":
        agent, config["idm"] = (
            "delta-pidm",
            describe(DeltaIDM(old["state_noise"], old["change_noise"], old["state_swap"])),
        )
    _rename(tensors, RENAMED)
    if "idm.delta_rms" in tensors:  # was one for all horizons
        tensors["idm.delta_rms"] = tensors["idm.delta_rms"].repeat(len(config["horizons"]), 1)
    memory = {name: tensors.pop(name).numpy() for name in list(tensors) if name.startswith("memory.")}
    if "memory.vectors" in memory:  # of images, each vector once
        parts = np.split(memory["memory.vectors"], np.cumsum(memory["memory.lengths"])[:-1])
        memory["memory.observations"] = np.concatenate([stack_history(part, config["history"]) for part in parts])
        memory.setdefault("memory.flags", np.array([], dtype=np.int64))
        del memory["memory.vectors"]
    if "memory.states" in memory:  # pairs of a state and its future: an episode of one step each
        pairs = np.stack([memory.pop("memory.states"), memory.pop("memory.futures")], axis=1)
        memory["memory.observations"] = pairs.reshape(-1, pairs.shape[-1])
        memory["memory.lengths"] = np.full(len(pairs), 2)
    if config["predictor"] == "learned":
        memory["memory.trained_horizon"] = np.array(config["act_horizon"] or min(config["horizons"]))
    tensors |= {f"memory.predictor.{name[7:]}": torch.tensor(array) for name, array in memory.items()}
    return agent, config


def _rename(tensors: dict[str, Tensor], names: dict[str, str]) -> None:
    for name in list(tensors):
        for old, new in names.items():
            if name.startswith(old):
                tensors[new + name[len(old) :]] = tensors.pop(name)
                break
