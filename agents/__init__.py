"""Imitation agents in torch: BC, PIDM and baselines, for any Gymnasium or Stable-Baselines3 loop."""

try:
    import torch  # noqa: F401
except ModuleNotFoundError:
    raise ModuleNotFoundError("agents need torch: pip install 'pidm-nav[agents]'", name="torch") from None

from pidm_nav.agents.agent import Agent
from pidm_nav.agents.batches import Batch, Sampling, TrainingData
from pidm_nav.agents.bc import BC
from pidm_nav.agents.checkpoint import load_agent
from pidm_nav.agents.chunking import Chunking, ChunkingConfig
from pidm_nav.agents.config import AgentConfig, Preset, TrainConfig
from pidm_nav.agents.corrective import CorrectiveBC, CorrectiveConfig
from pidm_nav.agents.dagger import dagger
from pidm_nav.agents.diffusion import Diffusion, DiffusionConfig
from pidm_nav.agents.fit import Fit
from pidm_nav.agents.hub import push_to_hub
from pidm_nav.agents.idm import DeltaIDM, InverseDynamics, LinearIDM, StateIDM
from pidm_nav.agents.learned import Learned
from pidm_nav.agents.parts import PIDMConfig, PredictiveAgent
from pidm_nav.agents.pidm import PIDM, DeltaPIDM
from pidm_nav.agents.predictors import Follow, Lookup, Nearest, Neighbors, Predictor, TimeIndexed
from pidm_nav.agents.pull import Pull
from pidm_nav.agents.recurrent import RecurrentBC, RecurrentConfig, RecurrentPIDM, RecurrentPIDMConfig
from pidm_nav.agents.registry import AGENTS, IDMS, PREDICTORS, register
from pidm_nav.agents.retrieval import RetrievalBC
from pidm_nav.agents.train import choose_preset, train
from pidm_nav.plugins import load_plugin, load_plugins

__all__ = [
    "AGENTS",
    "BC",
    "IDMS",
    "PIDM",
    "PREDICTORS",
    "Agent",
    "AgentConfig",
    "Batch",
    "Chunking",
    "ChunkingConfig",
    "CorrectiveBC",
    "CorrectiveConfig",
    "DeltaIDM",
    "DeltaPIDM",
    "Diffusion",
    "DiffusionConfig",
    "Fit",
    "Follow",
    "InverseDynamics",
    "Learned",
    "LinearIDM",
    "Lookup",
    "Nearest",
    "Neighbors",
    "PIDMConfig",
    "PredictiveAgent",
    "Predictor",
    "Preset",
    "Pull",
    "RecurrentBC",
    "RecurrentConfig",
    "RecurrentPIDM",
    "RecurrentPIDMConfig",
    "RetrievalBC",
    "Sampling",
    "StateIDM",
    "TimeIndexed",
    "TrainConfig",
    "TrainingData",
    "choose_preset",
    "dagger",
    "load_agent",
    "load_plugin",
    "push_to_hub",
    "register",
    "train",
]

load_plugins()  # last, as plugins import these names
