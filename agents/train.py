"""train(): train an agent on demonstrations, with presets, a log, checkpoints, and resuming after a kill."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from torch import nn

from pidm_nav.agents.agent import Agent, find_device, make_agent, torch_threads
from pidm_nav.agents.batches import TrainingData
from pidm_nav.agents.checkpoint import DESCRIPTION
from pidm_nav.agents.config import AgentConfig, Preset
from pidm_nav.agents.encoders import Frozen, is_trained
from pidm_nav.agents.fit import Fit
from pidm_nav.agents.journal import LOSSES, TENSORBOARD, OnLog, journal
from pidm_nav.agents.registry import find_part, source_hash
from pidm_nav.agents.tensors import load_tensors, save_tensors
from pidm_nav.console import say
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.failed import Failed, without_failed
from pidm_nav.demos.formats import load_demos
from pidm_nav.files import only_writer, writable_folder
from pidm_nav.limits import MAX_EPISODES, check_number
from pidm_nav.rollouts.evaluation import evaluate
from pidm_nav.seeds import VALIDATION
from pidm_nav.tasks import find_task

FRAME_PRESETS = ("pixels", "frozen")
STATE_FILE, CHECKPOINTS = "training.safetensors", "checkpoints"
UNFINISHED = "unfinished"  # subfolder for a run that will replace the agent in the folder
EVALUATIONS = 5  # number of evaluations during training; the last is at the end
Spaces = tuple[spaces.Space[Any], spaces.Space[Any]]
OnCheckpoint = Callable[[int, Agent], None]
Score = Callable[[Agent], dict[str, float]]


def choose_preset(
    agent: str | type[Agent],
    dataset: DemoDataset,
    name: str | None = None,
    encoder: nn.Module | None = None,
    **settings: Any,
) -> Preset:
    """Return the settings of a preset, with the given settings changed.

    Default of the preset: `fast`. For images: `pixels` if their encoder is trained, `frozen` otherwise.
    """
    images = dataset[0].observations.ndim == 4
    kind = find_part("agent", agent)
    if name is None and images:
        default = kind.preset("pixels" if "pixels" in kind.presets else "frozen")
        name = "pixels" if is_trained(settings.get("frames", default.options.frames), encoder) else "frozen"
    preset: Preset = kind.preset(name or "fast", dataset.task)
    if (name in FRAME_PRESETS) != images:
        observed = "images" if images else "states"
        fitting = " or ".join(each for each in kind.presets if (each in FRAME_PRESETS) == images)
        raise ValueError(f"the preset '{name}' is not for demonstrations with {observed}: choose {fitting}")
    return preset.changed(**settings)


def dataset_spaces(dataset: DemoDataset) -> Spaces:
    """Return the observation and action space of the demonstrations' environment."""
    try:
        env = find_task(dataset.task).make(**dataset.env_kwargs)
    except (ValueError, ModuleNotFoundError, gym.error.Error) as error:
        raise ValueError(
            f"the environment of these demonstrations by {dataset.source.get('made_by', 'unknown')} cannot be made "
            f"({error}): register it and name it with dataclasses.replace(demos, task=its_id), or give "
            "env_spaces=(observation_space, action_space)"
        ) from error
    env.close()
    return env.observation_space, env.action_space


def train(
    agent: str | type[Agent],
    dataset: DemoDataset | str | Path,
    preset: str | Preset | None = None,
    out: str | Path | None = None,
    *,
    predictor_data: DemoDataset | str | Path | None = None,
    idm_data: DemoDataset | str | Path | None = None,
    failed: Failed | None = None,
    encoder: nn.Module | None = None,
    env_spaces: Spaces | None = None,
    overwrite: bool = False,
    progress: bool = True,
    device: str = "cpu",
    eval_episodes: int = 0,
    on_checkpoint: OnCheckpoint | None = None,
    on_log: OnLog | None = None,
    **settings: Any,
) -> Agent:
    """Train an agent on demonstrations and return it, ready to act.

    Args:
        agent: name in `AGENTS`, or a class derived from `Agent`.
        dataset: demonstrations of one task, or an argument of `load_demos` such as `maze/human-like`.
        preset: name of one of the agent's presets, or all settings; see `choose_preset` for the default.
        out: folder for the agent, its checkpoints and its log; an unfinished run in it is resumed.
        predictor_data: more demonstrations of the task for PIDM's predictor, used without actions.
        idm_data: more episodes for PIDM's inverse dynamics model, of any quality and of any task with equal shapes,
            such as `collect_random_play(task)`; needed if the demonstrations have no actions.
        failed: treatment of demonstrations that are known to fail: `drop` (default of PIDM and its variants), `trim`
            after the last reached goal (default of other agents), or `keep`. All are kept if none succeeds. `idm_data`
            are always kept.
        encoder: encoder of states, or of images if observations are images, instead of the package's.
        env_spaces: observation and action space, if the environment of the dataset's task cannot be made.
        overwrite: replace an agent in `out`.
        progress: show a progress bar, in a terminal or a notebook.
        device: cpu, cuda, cuda:1, mps, or auto (a GPU if there is one). Weights and batches are drawn alike on all
            devices, so results differ by rounding only, and a run can be resumed on another device.
        eval_episodes: number of rollouts in each of five evaluations during training. Their mean score is logged; they
            do not affect training.
        on_checkpoint: called with the step and a copy of the agent, ready to act, at each checkpoint and at the end.
        on_log: called with each log entry: a dict of step, loss and its terms, learning rate and score.
        settings: settings of the agent (as in `PIDMConfig`) and of training (as in `TrainConfig`) that differ from the
            preset, e.g. `steps=500, horizons=(1, 6), predictor=Neighbors(k=5)`.
    """
    kind: type[Agent] = find_part("agent", agent)
    dataset = load_demos(dataset)
    predictor_data, idm_data = (None if each is None else load_demos(each) for each in (predictor_data, idm_data))
    if isinstance(preset, Preset):
        chosen = preset.changed(**settings)
    else:
        chosen = choose_preset(kind, dataset, preset, encoder, **settings)
    how, num_failed = kind.failed if failed is None else failed, dataset.num_failed
    dataset = without_failed(dataset, how, quiet=not progress)
    predictor_data = predictor_data and without_failed(predictor_data, how)
    _check_settings(kind, chosen, dataset, predictor_data, idm_data)
    check_number("eval_episodes", eval_episodes, 0, MAX_EPISODES)
    config, place = chosen.training, find_device(device)
    score = _scorer(dataset, eval_episodes) if eval_episodes else None
    policy = make_agent(kind, env_spaces or dataset_spaces(dataset), chosen.options, encoder, config.seed).to(place)
    data = TrainingData(dataset, *([each] if each else [] for each in (predictor_data, idm_data)))
    for each in (dataset, *data.predictor, *data.idm):
        _check_fits(each, policy)
    output_dir = nullcontext() if out is None else _output_dir(Path(out), overwrite)
    with output_dir as folder, torch_threads(config.threads):
        policy.description = {**_describe(data, chosen), "device": place.type}
        if num_failed:
            policy.description["failed_demos"] = {"episodes": num_failed, "how": how}
        if kind.trainable:
            run = Fit(policy, data, config)
            _run(run, folder, progress, on_checkpoint, score, on_log)
        else:
            policy.prepare(data)
        policy.eval()
        policy.description |= policy.diagnostics()
        if out is not None:
            policy.save(out)
        if on_checkpoint:
            on_checkpoint(config.steps, copy.deepcopy(policy))
    return policy


def _run(
    run: Fit,
    folder: Path | None,
    progress: bool,
    on_checkpoint: OnCheckpoint | None,
    score: Score | None,
    on_log: OnLog | None,
) -> None:
    """Take all remaining gradient steps, and make the agent ready to act."""
    config, agent = run.config, run.agent
    state_file, identity = None if folder is None else folder / STATE_FILE, _identity(run)
    if state_file is not None and state_file.exists():
        tensors, found = load_tensors(state_file, "delete it to train from the beginning")
        if found != identity:
            other = "an unfinished training run of another agent, configuration, dataset or code"
            raise ValueError(f"{folder} holds {other}: choose another folder or delete {STATE_FILE}")
        run.resume(tensors)
        if progress:
            say(f"resuming the run in {folder} at step {run.steps:,} of {config.steps:,}")
    scored = {config.steps * number // EVALUATIONS for number in range(1, EVALUATIONS + 1)} if score else ()
    with journal(folder, agent.name, config.steps, run.steps, progress, on_log) as log:
        for batch in run.batches():
            try:
                terms = agent.loss(batch, run.rng)
            except ValueError as error:
                if "more than 1 value per channel" not in str(error):
                    raise
                raise ValueError("batch norm needs at least 2 states in a batch: choose a larger batch_size") from None
            loss = run.step(terms)
            done = run.steps
            if done % config.log_every == 0 or done == config.steps or done in scored:
                entry = {"loss": loss.item(), "learning_rate": config.rate(done - 1)}
                if isinstance(terms, Mapping) and len(terms) > 1:
                    entry |= {f"loss_{name}": term.item() for name, term in terms.items()}
                if not math.isfinite(entry["loss"]):
                    raise ValueError(f"the loss is {loss.item()} after {done} steps: choose a smaller learning_rate")
                if score and done in scored:
                    entry |= score(run.ready_copy())
                log(done, entry)
            if done in config.checkpoints and done < config.steps:
                ready = run.ready_copy()
                if folder is not None:
                    ready.save(folder / CHECKPOINTS / f"step-{done:06d}")
                if on_checkpoint:
                    on_checkpoint(done, ready)
            if state_file is not None and done % config.save_every == 0 and done < config.steps:
                save_tensors(state_file, run.state(), identity)
    run.finish()


def _identity(run: Fit) -> str:
    """Return a hash of everything that a training run depends on: code, settings, frozen encoder and data."""
    agent = run.agent
    encoder = agent.vision.fitted_to.tolist() if isinstance(agent.vision, Frozen) else None  # settings have its name
    sets: Sequence[Sequence[DemoDataset]] = ([run.data.demos], run.data.predictor, run.data.idm)
    code = source_hash(*(type(module) for module in agent.modules()))
    parts = [agent.name, asdict(agent.config), asdict(run.config), encoder, code]
    parts.append([[dataset.sha256 for dataset in each] for each in sets])
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def _check_settings(
    kind: type[Agent],
    preset: Preset,
    dataset: DemoDataset,
    predictor_data: DemoDataset | None,
    idm_data: DemoDataset | None,
) -> None:
    """Raise ValueError for settings and data that this agent cannot use."""
    own = {name: getattr(preset.options, name) for name in ("frames", "frame_size", "history")}
    if dataset[0].observations.ndim != 4 and own != {name: getattr(AgentConfig, name) for name in own}:
        raise ValueError(f"the settings {', '.join(own)} are for images, and these are states: leave them out")
    for name, more in {"predictor_data": predictor_data, "idm_data": idm_data}.items():
        if more is not None and name not in kind.uses:
            raise ValueError(f"{kind.name} does not use {name}: leave it out, or train pidm")
    if idm_data is not None and not idm_data.action_dim:
        raise ValueError("idm_data has no actions: give data with actions for the inverse dynamics model")
    if not dataset.action_dim and idm_data is None:
        given = "give" if "idm_data" in kind.uses else "train pidm, and give"
        raise ValueError(
            f"these demonstrations have no actions for {kind.name} to learn: {given} other data for the inverse "
            "dynamics model, such as random play, as idm_data"
        )


def _scorer(dataset: DemoDataset, episodes: int) -> Score:
    """Return a function that evaluates an agent in the demonstrations' task and returns its mean score by name."""
    task, arguments = find_task(dataset.task), dataset.env_kwargs

    def score(agent: Agent) -> dict[str, float]:
        result = evaluate(agent, task, episodes, VALIDATION.start, keep_episodes=False, **arguments)
        return {result.metric.replace(" ", "_"): float(result.scores.mean())}

    return score


def _check_fits(dataset: DemoDataset, agent: Agent) -> None:
    """Raise ValueError unless the demonstrations have the agent's shapes; they may lack actions."""
    actions = agent.action_space.shape or (1,)  # a discrete action is recorded as one number
    for name, wanted in {"observations": agent.observation_space.shape, "actions": actions}.items():
        shape = getattr(dataset[0], name).shape[1:]
        if shape != wanted and (name == "observations" or dataset.action_dim):
            raise ValueError(
                f"demonstrations of {dataset.task} have {name} of shape {shape}, and the agent's have {wanted}: "
                "give others"
            )
    space = agent.action_space
    if isinstance(space, spaces.Box) and dataset.action_dim:
        made = np.concatenate([episode.actions for episode in dataset])
        outside = (made < space.low) | (made > space.high)
        if outside.any():
            largest = max(made[outside].tolist(), key=abs)
            warnings.warn(
                f"{outside.any(axis=1).sum():,} of {len(made):,} actions of {dataset.task} are out of bounds, up to "
                f"{largest:g}, and are clipped: rescale them if they are in another unit",
                stacklevel=3,
            )


@contextmanager
def _output_dir(out: Path, overwrite: bool) -> Iterator[Path]:
    """Yield the folder to train in: `out`, or a subfolder while `out` holds an agent that is to be replaced."""
    writable_folder(out)
    try:
        with only_writer(out / STATE_FILE, "wait until it has ended, or choose another folder"):
            replaces = (out / DESCRIPTION).exists()
            if replaces and not overwrite:
                raise ValueError(f"{out} already holds a trained agent: choose another folder, or overwrite=True")
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
            out.rmdir()  # if it is empty
        raise
    except OSError as error:
        if error.filename is not None or error.errno is None:  # its message names the file
            raise
        raise OSError(f"cannot write to '{out}' ({error.strerror}): make room and start again") from None


def _describe(data: TrainingData, preset: Preset) -> dict[str, Any]:
    """Return the description of a saved agent's origin, as plain JSON values."""
    demos = data.demos
    description = {"task": demos.task, "env_kwargs": demos.env_kwargs, "training": asdict(preset.training)}
    for name, sets in {"data": [demos], "predictor_data": data.predictor, "idm_data": data.idm}.items():
        for each in sets:
            made_by = each.source.get("made_by", "unknown")
            description[name] = {**asdict(each.summary()), "made_by": made_by, "name": each.name, "sha256": each.sha256}
    plain: dict[str, Any] = json.loads(json.dumps(description))
    return plain
