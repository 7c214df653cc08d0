"""Training: one configuration, one loop for every agent, the same result for the same seed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import gymnasium as gym
import torch
from gymnasium import spaces
from torch import nn

from pidm_nav.agents.encoders import MIN_SIDE, is_trained
from pidm_nav.agents.loop import optimise, torch_threads
from pidm_nav.agents.policy import AgentConfig, NavPolicy
from pidm_nav.agents.resume import STATE_FILE
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.tasks import TASKS


@dataclass(frozen=True)
class TrainConfig:
    """How an agent is trained; the defaults are the `fast` preset, the same for every task."""

    steps: int = 2000  # gradient steps
    batch_size: int = 128  # actions a step; the whole dataset where that is smaller
    learning_rate: float = 1e-3  # Adam's, at the first step
    final_learning_rate: float = 0.0  # reached in a straight line
    decay_steps: int | None = None  # where it is reached; None for the last step
    gradient_clip: float | None = 1.0  # largest norm of the gradient; None for no limit
    loss: Literal["l1", "mse"] = "mse"  # l1 is the paper's; its median lets BC stand still where people hesitate
    average: float = 0.0  # decay of the exponential average of weights to act with; 0 for the last weights
    exact_statistics: bool = True  # batch norm's statistics over the training data, not a running average
    scale_observations: bool = True  # off feeds raw pixels to the networks, as the paper's recipe does
    window: int = 2  # PIDM with k=1 draws runs of this many actions: a state is encoded once for two uses
    shift: int = 0  # pixels by which the frames of a batch are moved, where an encoder is trained on them
    seed: int = 0  # of weights and batches
    checkpoints: tuple[int, ...] = ()  # steps after which to keep a copy of the agent, besides the last
    threads: int = 1  # torch's, while training; equal results for equal seeds need 1
    log_every: int = 100  # steps a line of losses
    save_every: int = 1000  # steps after which a killed training can go on

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "window", "threads", "log_every", "save_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}: it must be at least 1")
        if not 0 <= self.shift < MIN_SIDE:
            raise ValueError(f"shift is {self.shift}: frames can be moved by 0 to {MIN_SIDE - 1} pixels")
        if self.loss not in ("l1", "mse"):
            raise ValueError(f"loss '{self.loss}' is not known: choose l1 or mse")
        if not 0 < self.learning_rate < 10:
            raise ValueError(f"learning_rate is {self.learning_rate}: it must be above 0")
        if any(not 0 < step <= self.steps for step in self.checkpoints):
            raise ValueError(f"checkpoints {self.checkpoints} must lie within the {self.steps} steps")

    def rate(self, step: int) -> float:
        """The learning rate of a step."""
        fraction = min(1.0, step / (self.decay_steps or self.steps))
        return self.learning_rate + (self.final_learning_rate - self.learning_rate) * fraction


PRESETS: dict[str, TrainConfig] = {
    "fast": TrainConfig(),
    # the paper's recipe: PIDM's constant rate stands here, BC's are below
    "paper": TrainConfig(
        steps=100_000,
        batch_size=4096,
        loss="l1",
        learning_rate=1e-5,
        final_learning_rate=1e-5,
        gradient_clip=None,
        exact_statistics=False,
        scale_observations=False,
        window=1,
        checkpoints=(5_000, 10_000, 50_000),
    ),
    # for observations that are frames: with a CNN to train, and with vectors of a frozen encoder
    "pixels": TrainConfig(steps=750, learning_rate=1e-3, window=16, shift=4, save_every=250),
    "frozen": TrainConfig(steps=1500, batch_size=256, learning_rate=1e-3, window=1, save_every=500),
}
# what BC does best with on human demonstrations of Maze; PIDM does worse with it
FAST_BC_RATE = 3e-3
# the paper tuned BC per task: the rate that falls to 1e-6 over 50,000 steps, and the gradient's limit
PAPER_BC: dict[str, tuple[float, float | None]] = {
    "four-room": (1e-3, 1.0),
    "zigzag": (1e-4, 1.0),
    "maze": (1e-4, 1.0),
    "multiroom": (1e-4, None),
}


def preset(name: str, agent: str, task: str) -> TrainConfig:
    """The configuration of that name for an agent and a task."""
    if name not in PRESETS:
        raise ValueError(f"no preset is called '{name}': choose one of {', '.join(PRESETS)}")
    config = PRESETS[name]
    if name == "fast" and agent == "bc":
        return replace(config, learning_rate=FAST_BC_RATE)
    if name == "paper" and agent == "bc":
        rate, clip = PAPER_BC.get(task, (1e-4, 1.0))
        return replace(config, learning_rate=rate, final_learning_rate=1e-6, decay_steps=50_000, gradient_clip=clip)
    return config


def shows_frames(dataset: DemoDataset) -> bool:
    """Whether observations are pictures (T+1, H, W, C)."""
    return dataset[0].observations.ndim == 4


def default_preset(dataset: DemoDataset, options: AgentConfig, encoder: nn.Module | None = None) -> str:
    """The preset for demonstrations: `pixels` or `frozen`, by the encoder, where they are frames, else `fast`."""
    if not shows_frames(dataset):
        return "fast"
    return "pixels" if is_trained(options.frames, encoder) else "frozen"


def default_options(agent: str, dataset: DemoDataset, **changes: Any) -> AgentConfig:
    """An agent's options: the paper's for 2D navigation, or those for its 3D world where observations are frames.

    Args:
        agent: a name in `AGENTS`.
        dataset: what it shall learn from.
        changes: fields that shall differ.
    """
    from pidm_nav.agents import AGENTS

    if agent not in AGENTS:
        raise ValueError(f"no agent is called '{agent}': choose one of {', '.join(AGENTS)}")
    values: dict[str, Any] = {}
    if shows_frames(dataset):
        values = {"encoder_sizes": (1024, 512, 512), "head_sizes": (512, 256)}
        if agent == "pidm":
            values |= {"horizons": (1, 6, 11, 16, 21, 26), "predictor": "time"}
        if not AGENTS[agent].trainable:
            values |= {"frames": "random"}
    return AGENTS[agent].config_class(**{**values, **changes})


# arguments of an environment that an agent must act with, unlike noise and the like
LOOKS = frozenset({"layout", "room_size", "goal_order", "obs_type", "image_size", "observe_goals", "relative_goals"})
LOOKS |= {"random_start", "random_goals"}


def env_arguments(dataset: DemoDataset) -> dict[str, Any]:
    """The arguments that give an environment with the demonstrations' map and observations.

    All arguments for another's environment; for ours, dynamics stay the default: the paper's recordings were made
    without the clip of noisy actions that its experiments have.
    """
    arguments = dict(dataset.source.get("parts", [dataset.source])[0].get("env_kwargs", {}))
    ours = dataset.task in TASKS or dataset.task == "custom"
    return {name: value for name, value in arguments.items() if not ours or name in LOOKS}


def dataset_spaces(dataset: DemoDataset) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """Observation and action space of the environment that the demonstrations come from."""
    env_id = TASKS[dataset.task].env_id if dataset.task in TASKS else dataset.task
    env_id = "PIDMNav-Custom-v0" if env_id == "custom" else env_id
    try:
        env = gym.make(env_id, **env_arguments(dataset))
    except (gym.error.Error, TypeError, ModuleNotFoundError) as error:
        raise ValueError(
            f"the environment '{env_id}' of these demonstrations cannot be made: "
            "give observation_space and action_space"
        ) from error
    found = env.observation_space, env.action_space
    env.close()
    return found


def make_agent(
    name: str,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    options: AgentConfig | None = None,
    encoder: nn.Module | None = None,
    seed: int = 0,
) -> NavPolicy:
    """A new agent whose weights are drawn from `seed`; torch's global random state is left as it was."""
    from pidm_nav.agents import AGENTS

    if name not in AGENTS:
        raise ValueError(f"no agent is called '{name}': choose one of {', '.join(AGENTS)}")
    if options is not None and type(options) is not AGENTS[name].config_class:
        raise ValueError(
            f"options of type {type(options).__name__} are not for {name}: give a {AGENTS[name].config_class.__name__}"
        )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return AGENTS[name](observation_space, action_space, options, encoder=encoder, seed=seed)


def train(
    agent: str,
    dataset: DemoDataset,
    config: TrainConfig | str | None = None,
    out: str | Path | None = None,
    *,
    options: AgentConfig | None = None,
    predictor_data: DemoDataset | None = None,
    idm_data: DemoDataset | None = None,
    encoder: nn.Module | None = None,
    observation_space: spaces.Space[Any] | None = None,
    action_space: spaces.Space[Any] | None = None,
    overwrite: bool = False,
    progress: bool = False,
    on_checkpoint: Callable[[int, NavPolicy], None] | None = None,
) -> NavPolicy:
    """Train an agent on demonstrations and return it, ready to act.

    Args:
        agent: a name in `AGENTS`.
        dataset: expert demonstrations of one task.
        config: a configuration or a preset's name; by default what `default_preset` says.
        out: folder for the agent, its checkpoints and its losses; a killed training found there goes on.
        options: the agent's own, e.g. a `PIDMConfig`; by default what `default_options` says.
        predictor_data: more episodes of the task for PIDM's state predictor; their actions are not looked at.
        idm_data: more episodes for PIDM's inverse dynamics model, of any quality or task with equal shapes.
        encoder: another encoder than the paper's; for frames, another frame encoder.
        observation_space: of the environment, where it cannot be found by the dataset's task.
        action_space: likewise.
        overwrite: replace an agent that `out` holds already.
        progress: show a progress bar.
        on_checkpoint: called with the step and the agent, as it would act, at each checkpoint and at the end.
    """
    options = options if options is not None else default_options(agent, dataset)
    config = config if config is not None else default_preset(dataset, options, encoder)
    if isinstance(config, str):
        config = preset(config, agent, dataset.task)
    if agent != "pidm" and (predictor_data is not None or idm_data is not None):
        raise ValueError(f"predictor_data and idm_data are for pidm: {agent} has neither part")
    if observation_space is None or action_space is None:
        found = dataset_spaces(dataset)
        observation_space = observation_space or found[0]
        action_space = action_space or found[1]
    folder = _fresh_folder(out, overwrite)
    policy = make_agent(agent, observation_space, action_space, options, encoder, config.seed)
    if policy.config.scale_observations and not config.scale_observations:
        policy = make_agent(
            agent,
            observation_space,
            action_space,
            replace(policy.config, scale_observations=False),
            encoder,
            config.seed,
        )
    with torch_threads(config.threads):
        policy.prepare(dataset, [predictor_data] if predictor_data else [])
        policy.description = _describe(dataset, config, predictor_data, idm_data)
        if policy.trainable:
            data = [dataset, *([idm_data] if idm_data else [])]
            optimise(policy, data, config, folder, progress, on_checkpoint)
        elif on_checkpoint:
            on_checkpoint(config.steps, policy)
    policy.eval()
    if folder is not None:
        policy.save(folder)
        (folder / STATE_FILE).unlink(missing_ok=True)
    return policy


def _fresh_folder(out: str | Path | None, overwrite: bool) -> Path | None:
    """The folder to write to, unless it holds a finished agent."""
    if out is None:
        return None
    folder = Path(out)
    if (folder / "agent.json").exists() and not overwrite:
        raise ValueError(f"{folder} already holds a trained agent: choose another folder or overwrite it")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _describe(
    dataset: DemoDataset,
    config: TrainConfig,
    predictor_data: DemoDataset | None,
    idm_data: DemoDataset | None,
) -> dict[str, Any]:
    """What a saved agent says about its origin, JSON-plain."""
    description = {
        "task": dataset.task,
        "env_kwargs": env_arguments(dataset),
        "data": {**asdict(dataset.summary()), "made_by": dataset.source.get("made_by", "unknown")},
        "training": asdict(config),
    }
    for name, extra in (("predictor_data", predictor_data), ("idm_data", idm_data)):
        if extra is not None:
            description[name] = asdict(extra.summary())
    plain: dict[str, Any] = json.loads(json.dumps(description))
    return plain
