"""The training loop that all agents share: samples, gradient steps, checkpoints, and the log of losses."""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from pidm_nav.agents.config import TrainConfig
from pidm_nav.agents.encoders import Frozen
from pidm_nav.agents.networks import Adam, recompute_batchnorm
from pidm_nav.agents.observations import Samples
from pidm_nav.agents.policy import NavPolicy
from pidm_nav.agents.tensors import load_tensors, save_tensors
from pidm_nav.console import progress_bar
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.files import write_text

CHUNK = 256  # steps whose batches are drawn at once
STATISTICS_BATCH = 4096
STATE_FILE = "training.safetensors"
LOSSES, CHECKPOINTS, TENSORBOARD = "losses.jsonl", "checkpoints", "tensorboard"
NOTE = {
    "loss": "loss {:.4f}",
    "goal_ratio": "goals {:.0%}",
    "success_rate": "success {:.0%}",
    "return": "return {:.4g}",
}
EVALUATIONS = 5  # in a training whose agent is scored as it goes on; the last one is at the end
OnCheckpoint = Callable[[int, NavPolicy], None]
Score = Callable[[NavPolicy], dict[str, float]]
OnLog = Callable[[dict[str, float]], None]


def make_samples(agent: NavPolicy, datasets: Sequence[DemoDataset], config: TrainConfig) -> Samples:
    """Return the training tensors of an agent, whose scales must have been fitted."""
    episodes = [episode for dataset in datasets for episode in dataset]
    none = np.zeros((1, agent.action_size), dtype=np.float32)
    actions = np.concatenate([part for episode in episodes for part in (episode.actions, none)])
    actions = np.clip(actions, agent.action_space.low, agent.action_space.high)
    counts = np.array([len(episode.observations) for episode in episodes])
    last = np.repeat(np.cumsum(counts) - 1, counts)
    has_action = np.arange(len(last)) != last
    states, tensor = agent.observations.table(episodes, config.shift), agent.observations.tensor
    whole = config.window > 1 and config.batch_size >= len(states) and not states.costly
    return Samples(
        states=states,
        actions=agent.action_scale(tensor(actions)) * tensor(has_action[:, None].astype(np.float32)),
        has_action=tensor(has_action),
        last=tensor(last),
        rows=tensor(np.flatnonzero(has_action)),
        window=len(states) - 1 if whole else config.window,
        futures=agent.predicted_futures(datasets),
    )


def fingerprint(
    agent: NavPolicy, config: TrainConfig, datasets: Sequence[DemoDataset], others: Sequence[DemoDataset] = ()
) -> str:
    """Return a hash of what a training depends on: agent, settings, frozen encoder, training data and other data."""
    encoder = agent.vision.fitted_to.tolist() if isinstance(agent.vision, Frozen) else None  # settings only name it
    data = [[dataset.sha256 for dataset in part] for part in (datasets, others)]
    parts = [agent.name, asdict(agent.config), asdict(config), encoder, data]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


class Training:
    """The training of an agent that is prepared for its demonstrations; one that was killed in `folder` is resumed.

    The weights are trained on `datasets`; `others` are data that the agent depends on besides.
    """

    def __init__(
        self,
        policy: NavPolicy,
        datasets: Sequence[DemoDataset],
        config: TrainConfig,
        folder: Path | None = None,
        others: Sequence[DemoDataset] = (),
    ) -> None:
        self.policy, self.config, self.folder = policy, config, folder
        self.samples = make_samples(policy, datasets, config)
        self.parameters = [parameter for parameter in policy.parameters() if parameter.requires_grad]
        self.optimizer = Adam(self.parameters)
        self.average = [parameter.detach().clone() for parameter in self.parameters] if config.average else []
        self.identity = fingerprint(policy, config, datasets, others)

    def run(
        self,
        progress: bool = False,
        on_checkpoint: OnCheckpoint | None = None,
        score: Score | None = None,
        on_log: OnLog | None = None,
    ) -> None:
        """Take all gradient steps that are left, and make the agent ready to act."""
        config, policy, folder = self.config, self.policy, self.folder
        first = self._load(folder / STATE_FILE) if folder and (folder / STATE_FILE).exists() else 0
        batches = self._batches(first)
        scored = {config.steps * part // EVALUATIONS for part in range(1, EVALUATIONS + 1)} if score else ()
        policy.train()
        with (
            _journal(folder, policy.name, config.steps, first, progress, on_log) as log,
            _signals_kept(folder is not None) as stopped,
        ):
            for step in range(first, config.steps):
                loss = self._step(step, next(batches))
                done = step + 1
                if done % config.log_every == 0 or done == config.steps or done in scored:
                    entry = {"loss": loss.item(), "learning_rate": config.rate(step)}
                    if not math.isfinite(entry["loss"]):
                        lost = f"the loss is {entry['loss']} after {done} steps"
                        raise ValueError(f"{lost}: choose a smaller learning_rate")
                    if score and done in scored:
                        with self._acting():
                            entry |= score(policy)
                    log(done, entry)
                if done in config.checkpoints and done < config.steps:
                    with self._acting():
                        if folder:
                            policy.save(folder / CHECKPOINTS / f"step-{done:06d}")
                        if on_checkpoint:
                            on_checkpoint(done, policy)
                if folder and (stopped or (done % config.save_every == 0 and done < config.steps)):
                    save_tensors(folder / STATE_FILE, self._state(done), self.identity)
                if stopped:
                    break
        self._finish()
        if on_checkpoint:
            on_checkpoint(config.steps, policy)

    def _state(self, step: int = 0) -> dict[str, Tensor]:
        """Return the tensors that all further steps depend on; batches depend on seed and step alone."""
        tensors = {f"agent.{name}": tensor for name, tensor in self.policy.state_dict().items()}
        for index, own in enumerate(self.optimizer.state):
            tensors |= {f"optimizer.{index}.{name}": tensor for name, tensor in own.items()}
        tensors |= {f"average.{index}": tensor for index, tensor in enumerate(self.average)}
        return tensors | {"step": torch.tensor(step)}

    def _load(self, path: Path) -> int:
        """Take over the state of a training that was stopped, and return the number of steps it took."""
        tensors, identity = load_tensors(path, "delete it to train from the beginning")
        own = self._state()
        alike = {name: tensor.shape for name, tensor in tensors.items()} == {name: own[name].shape for name in own}
        if identity != self.identity or not alike or not 0 < tensors["step"] <= self.config.steps:
            other = "an unfinished training of another agent, configuration or dataset"
            raise ValueError(f"{path.parent} holds {other}: choose another folder or delete it")
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
        return int(own["step"])

    def _step(self, step: int, chosen: Tensor) -> Tensor:
        """Take one gradient step and return the loss before it."""
        config = self.config
        measure = nn.L1Loss(reduction="none") if config.loss == "l1" else nn.MSELoss(reduction="none")
        rng = np.random.default_rng((config.seed * 1_000_003 + step) % 2**63)
        loss = self.policy.loss(self.samples, chosen, measure, rng)
        loss.backward()  # type: ignore[no-untyped-call]
        if config.gradient_clip is not None:
            foreach = self.parameters[0].is_cpu or None  # in one pass; elsewhere torch knows whether it can do that
            nn.utils.clip_grad_norm_(self.parameters, config.gradient_clip, foreach=foreach)
        self.optimizer.step(config.rate(step))
        if self.average:  # the first decays are smaller, or the random first weights would linger
            weight = 1 - min(config.average, (1 + step) / (10 + step))
            torch._foreach_lerp_(self.average, list[Tensor](self.parameters), weight)
        return loss

    def _batches(self, step: int) -> Iterator[Tensor]:
        """Yield the batch of each step: passes over the data in random order, a function of seed and step."""
        candidates, size = self.policy.candidates(self.samples, self.config.batch_size)
        while True:
            if size >= len(candidates):
                yield candidates
                continue
            chunk, offset = divmod(step, CHUNK)
            generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + chunk)
            passes = -(-CHUNK * size // len(candidates))
            order = torch.cat([torch.randperm(len(candidates), generator=generator) for _ in range(passes)])
            for batch in candidates[order.to(candidates.device)][: CHUNK * size].view(CHUNK, size)[offset:]:
                yield batch
                step += 1

    @contextmanager
    def _acting(self) -> Iterator[None]:
        """Make the agent ready to act inside the block; after it, training goes on as if there had been none."""
        kept = copy.deepcopy(self.policy.state_dict())
        self._finish()
        yield
        self.policy.load_state_dict(kept)
        self.policy.train()

    @torch.no_grad()
    def _finish(self) -> None:
        """Turn from training to acting: averaged weights, exact statistics, evaluation mode."""
        for parameter, mean in zip(self.parameters, self.average, strict=False):
            parameter.copy_(mean)
        self.policy.settle()
        encoder = getattr(self.policy, "encoder", None)
        if self.config.exact_statistics and isinstance(encoder, nn.Module):
            # running averages lag behind weights that still change, which shows after a short training
            recompute_batchnorm(encoder, lambda: self.samples.states.batches(STATISTICS_BATCH))
        self.policy.eval()


def _append(path: Path, line: str) -> None:
    """Add a line to a text file, as a whole or not at all."""
    size = path.stat().st_size
    try:
        with path.open("ab") as file:
            file.write(f"{line}\n".encode())
    except OSError as error:
        os.truncate(path, size)
        raise OSError(f"cannot write '{path}' ({error.strerror}): make room for it and start again") from None


@contextmanager
def _journal(
    folder: Path | None, name: str, steps: int, first: int, progress: bool, on_log: OnLog | None
) -> Iterator[Callable[[int, dict[str, float]], None]]:
    """Yield the function that logs loss and scores: to a progress bar, JSON lines and, if installed, TensorBoard."""
    began, shown, latest = time.perf_counter(), first, dict[str, float]()
    with ExitStack() as stack:
        advance = stack.enter_context(progress_bar(f"training {name}", steps, first, progress))
        board: Any = None
        if folder is not None:
            path = folder / LOSSES
            text = path.read_text(encoding="utf-8", errors="replace") if first and path.exists() else ""
            whole = re.findall(r'^(\{"step": (\d{1,10}),.*\})$', text, re.MULTILINE)  # no line that a kill cut short
            write_text(path, "".join(f"{line}\n" for line, step in whole if int(step) <= first))
            with suppress(ImportError):
                from torch.utils.tensorboard import SummaryWriter

                board = stack.enter_context(SummaryWriter(str(folder / TENSORBOARD), purge_step=first))

        def write(step: int, entry: dict[str, float]) -> None:
            nonlocal shown
            seconds = time.perf_counter() - began
            if folder is not None:
                _append(folder / LOSSES, json.dumps({"step": step, **entry, "seconds": round(seconds, 3)}))
            for key, value in entry.items() if board is not None else ():
                board.add_scalar(key, value, step)
            if on_log is not None:
                on_log({"step": step, **entry})
            latest.update(entry)  # a score stays until there is another
            texts = (text.format(latest[key]) for key, text in NOTE.items() if key in latest)
            advance(step - shown, note=f"{', '.join(texts)}, {(step - first) / max(seconds, 1e-9):.0f} steps/s")
            shown = step

        yield write


@contextmanager
def _signals_kept(keep: bool) -> Iterator[list[int]]:
    """Put Ctrl-C or SIGTERM off until the block, which is told of it, ends; the second one is not put off."""
    kept: list[int] = []

    def note(number: int, frame: object) -> None:
        if kept:
            raise KeyboardInterrupt(number)
        kept.append(number)

    keep = keep and threading.current_thread() is threading.main_thread()
    numbers = [each for each in (signal.SIGINT, signal.SIGTERM) if keep and signal.getsignal(each) != signal.SIG_IGN]
    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield kept
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if kept:
        raise KeyboardInterrupt(kept[0])
