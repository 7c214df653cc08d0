"""Training agents: settings by preset, the environment's spaces by task, the same result for the same seed."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
from gymnasium import spaces
from torch import nn

from pidm_nav.agents.checkpoint import DESCRIPTION
from pidm_nav.agents.config import AgentConfig, Preset
from pidm_nav.agents.encoders import is_trained
from pidm_nav.agents.loop import CHECKPOINTS, LOSSES, STATE_FILE, TENSORBOARD, OnCheckpoint, OnLog, Score, Training
from pidm_nav.agents.policy import NavPolicy, agent_class, find_device, make_agent, torch_threads
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.files import only_writer, writable_folder
from pidm_nav.limits import MAX_EPISODES, check_number
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.seeds import VALIDATION
from pidm_nav.tasks import TASKS, find_task

FRAME_PRESETS = ("pixels", "frozen")
UNFINISHED = "unfinished"  # folder of a training that will replace the agent above it
Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]


def choose_preset(
    agent: str, dataset: DemoDataset, name: str | None = None, encoder: nn.Module | None = None, **settings: Any
) -> Preset:
    """Return the settings to train an agent with: those of a preset, with single settings changed by name.

    The preset defaults to fast or, where observations are images, to pixels if there is an encoder of images to train
    and to frozen if not.
    """
    images = dataset[0].observations.ndim == 4
    kind = agent_class(agent)
    if name is None and images:
        frames = settings.get("frames", kind.preset("pixels").options.frames)
        name = "pixels" if is_trained(frames, encoder) else "frozen"
    preset = kind.preset(name or "fast", dataset.task)
    if (name in FRAME_PRESETS) != images:
        have = "images" if images else "no images"
        fitting = " or ".join(each for each in kind.presets if (each in FRAME_PRESETS) == images)
        raise ValueError(f"preset '{name}' is not for demonstrations that have {have}: choose {fitting}")
    return preset.changed(**settings)


def env_arguments(dataset: DemoDataset) -> dict[str, Any]:
    """Return the arguments of an environment with the demonstrations' map and observations.

    Arguments that only change the dynamics are left out: the paper's recordings were made without the clip of noisy
    actions that its experiments have.
    """
    arguments = dataset.parts[0].get("env_kwargs", {})
    task = TASKS.get(dataset.task)
    return {name: value for name, value in arguments.items() if task is None or name not in task.dynamics}


def dataset_spaces(dataset: DemoDataset) -> Spaces:
    """Return the observation and action space of the environment that the demonstrations come from."""
    try:
        env = find_task(dataset.task).make(**env_arguments(dataset))
    except (ValueError, ModuleNotFoundError, gym.error.Error) as error:
        raise ValueError(
            f"the environment of these demonstrations, made by {dataset.source.get('made_by', 'somebody')}, cannot be "
            f"made ({error}): register it and name it with dataclasses.replace(demos, task=its_id), or "
            "give its spaces as env_spaces=(observation_space, action_space)"
        ) from error
    env.close()
    return env.observation_space, env.action_space


def train(
    agent: str,
    dataset: DemoDataset,
    preset: str | Preset | None = None,
    out: str | Path | None = None,
    *,
    predictor_data: DemoDataset | None = None,
    idm_data: DemoDataset | None = None,
    encoder: nn.Module | None = None,
    env_spaces: Spaces | None = None,
    overwrite: bool = False,
    progress: bool = True,
    device: str = "cpu",
    eval_episodes: int = 0,
    on_checkpoint: OnCheckpoint | None = None,
    on_log: OnLog | None = None,
    **settings: Any,
) -> NavPolicy:
    """Train an agent on demonstrations and return it, ready to act.

    Args:
        agent: a name in `AGENTS`.
        dataset: expert demonstrations of one task.
        preset: the name of one of the agent's presets, or all settings; see `choose_preset` for the default.
        out: folder for the agent, its checkpoints and its losses; a killed training found there is resumed.
        predictor_data: more episodes of the task for PIDM's state predictor, which does not use their actions.
        idm_data: more episodes for PIDM's inverse dynamics model, of any quality or task with equal shapes, such as
            `play(task)`; needed where the demonstrations have no actions.
        encoder: an encoder of states or, where observations are images, of images to use instead of the package's.
        env_spaces: observation and action space, where the environment of the dataset's task cannot be made.
        overwrite: replace an agent that `out` holds already.
        progress: show a progress bar, in a terminal or a notebook.
        device: where to train: cpu, cuda, cuda:1, mps, or auto for a GPU where there is one. It is no setting: weights
            and batches are drawn alike on all devices, so results differ by rounding only, and a training that was
            killed on one device may be resumed on another.
        eval_episodes: number of rollouts in each of five evaluations during training, whose mean score is logged with
            the loss; they do not change the agent.
        on_checkpoint: called with the step and the agent, ready to act, at each checkpoint and at the end.
        on_log: called with each entry of the log: a dict of the step, loss, learning rate and, if there is one, score.
        settings: settings of the agent (as in `PIDMConfig`) and of the training (as in `TrainConfig`) that shall differ
            from the preset, e.g. `steps=500, horizons=(1, 6)`.
    """
    if isinstance(preset, Preset):
        chosen = preset.changed(**settings)
    else:
        chosen = choose_preset(agent, dataset, preset, encoder, **settings)
    own = {name: getattr(chosen.options, name) for name in ("frames", "frame_size", "history")}
    if dataset[0].observations.ndim != 4 and own != {name: getattr(AgentConfig, name) for name in own}:
        raise ValueError(f"the settings {', '.join(own)} are for images, which these demonstrations do not have")
    if agent != "pidm" and (predictor_data is not None or idm_data is not None):
        raise ValueError(f"predictor_data and idm_data are for pidm: {agent} has neither part")
    if not dataset.action_dim and (agent != "pidm" or idm_data is None):
        given = "give" if agent == "pidm" else "train pidm, and give"
        raise ValueError(
            f"{agent} learns which actions to take, and these demonstrations have none: {given} it other data for its "
            "inverse dynamics model, such as play, as idm_data (--idm-demos play)"
        )
    config, place = chosen.training, find_device(device)
    check_number("eval_episodes", eval_episodes, 0, MAX_EPISODES)
    score = _scorer(dataset, eval_episodes) if eval_episodes else None
    policy = make_agent(agent, *(env_spaces or dataset_spaces(dataset)), chosen.options, encoder, config.seed).to(place)
    extra, more = ([each] if each else [] for each in (predictor_data, idm_data))
    for each in (dataset, *extra, *more):
        _check_fits(each, policy)
    with (
        nullcontext() if out is None else _workplace(Path(out), overwrite) as folder,
        torch_threads(config.threads),
    ):
        policy.prepare(dataset, extra, more)
        policy.description = {**_describe(dataset, chosen, predictor_data, idm_data), "device": place.type}
        if policy.trainable:
            acted, others = ([dataset], extra) if dataset.action_dim else ([], [dataset, *extra])
            Training(policy, [*acted, *more], config, folder, others).run(progress, on_checkpoint, score, on_log)
        elif on_checkpoint:
            on_checkpoint(config.steps, policy)
        policy.description |= policy.findings()
        policy.eval()
        if out is not None:
            policy.save(out)
    return policy


def _scorer(dataset: DemoDataset, episodes: int) -> Score:
    """Return the function that gives an agent's mean score in a few rollouts of the demonstrations' task, by name."""
    task, arguments = find_task(dataset.task), env_arguments(dataset)

    def score(policy: NavPolicy) -> dict[str, float]:
        agent = copy.deepcopy(policy)  # playing changes nothing that the agent draws later
        result = evaluate(agent, task, episodes, VALIDATION.start, keep_episodes=False, **arguments)
        return {result.measure.replace(" ", "_"): float(result.scores.mean())}

    return score


def _check_fits(dataset: DemoDataset, agent: NavPolicy) -> None:
    """Refuse demonstrations of other shapes than the agent's; they may lack actions."""
    for name, space in {"observations": agent.observation_space, "actions": agent.action_space}.items():
        shape = getattr(dataset[0], name).shape[1:]
        if shape != space.shape and (name == "observations" or dataset.action_dim):
            raise ValueError(
                f"demonstrations of {dataset.task} have {name} of shape {shape}, the agent's have {space.shape}: "
                "they cannot train it"
            )


@contextmanager
def _workplace(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yield the folder to train in, which is not `out` itself while that holds an agent that is to be replaced."""
    writable_folder(out)
    try:
        with only_writer(out / STATE_FILE, "wait until it has ended, or choose another folder"):
            replaces = (out / DESCRIPTION).exists()
            if replaces and not overwrite:
                raise ValueError(f"{out} already holds a trained agent: choose another or give overwrite (--force)")
            folder = writable_folder(out / UNFINISHED) if replaces else out
            yield folder
            (folder / STATE_FILE).unlink(missing_ok=True)
            for name in (LOSSES, CHECKPOINTS, TENSORBOARD) if replaces else ():
                shutil.rmtree(out / name, ignore_errors=True)
                if (folder / name).exists():
                    os.replace(folder / name, out / name)
            if replaces:
                shutil.rmtree(folder)
    except ValueError:
        with suppress(OSError):
            out.rmdir()  # a refused training leaves no empty folder
        raise
    except OSError as error:
        if error.filename is not None or error.errno is None:  # it says itself what cannot be written
            raise
        raise OSError(f"cannot write to '{out}' ({error.strerror}): make room and start again") from None


def _describe(
    dataset: DemoDataset, preset: Preset, predictor_data: DemoDataset | None, idm_data: DemoDataset | None
) -> dict[str, Any]:
    """Return what a saved agent says about its origin, as plain JSON values."""
    description = {"task": dataset.task, "env_kwargs": env_arguments(dataset), "training": asdict(preset.training)}
    for name, data in {"data": dataset, "predictor_data": predictor_data, "idm_data": idm_data}.items():
        if data is not None:
            description[name] = {**asdict(data.summary()), "made_by": data.source.get("made_by", "unknown")}
    plain: dict[str, Any] = json.loads(json.dumps(description))
    return plain
