"""Imitation agents in torch, BC, PIDM and others to compare them with, for any Gymnasium or Stable-Baselines3 loop."""

from pidm_nav.agents.bc import BC
from pidm_nav.agents.checkpoint import load_agent
from pidm_nav.agents.chunking import Chunking, ChunkingConfig
from pidm_nav.agents.config import AgentConfig, Preset, TrainConfig
from pidm_nav.agents.dagger import dagger
from pidm_nav.agents.diffusion import Diffusion, DiffusionConfig
from pidm_nav.agents.pidm import PIDM, PIDMConfig
from pidm_nav.agents.policy import AGENTS, NavPolicy, make_agent
from pidm_nav.agents.retrieval import RetrievalBC
from pidm_nav.agents.train import choose_preset, train

AGENTS |= {agent.name: agent for agent in (BC, Chunking, Diffusion, PIDM, RetrievalBC)}

__all__ = [
    "AGENTS",
    "BC",
    "PIDM",
    "AgentConfig",
    "Chunking",
    "ChunkingConfig",
    "Diffusion",
    "DiffusionConfig",
    "NavPolicy",
    "PIDMConfig",
    "Preset",
    "RetrievalBC",
    "TrainConfig",
    "choose_preset",
    "dagger",
    "load_agent",
    "make_agent",
    "train",
]
