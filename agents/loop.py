"""The training loop that every agent shares."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pidm_nav.agents.networks import recompute_statistics
from pidm_nav.agents.policy import NavPolicy
from pidm_nav.agents.progress import Journal
from pidm_nav.agents.resume import fingerprint, load_state, save_state
from pidm_nav.agents.samples import Samples, make_samples

if TYPE_CHECKING:
    from pidm_nav.agents.train import TrainConfig
    from pidm_nav.demos.dataset import DemoDataset

CHUNK = 256  # steps whose batches are drawn at once
STATISTICS_BATCH = 4096


def optimise(
    policy: NavPolicy,
    datasets: Sequence[DemoDataset],
    config: TrainConfig,
    folder: Path | None,
    progress: bool,
    on_checkpoint: Callable[[int, NavPolicy], None] | None,
) -> None:
    """Gradient steps from the first, or from where a killed training was, to the last."""
    samples = make_samples(policy, datasets, config.window, config.shift)
    parameters = [parameter for parameter in policy.parameters() if parameter.requires_grad]
    optimizer = _adam(parameters, config.learning_rate)
    average = [parameter.detach().clone() for parameter in parameters] if config.average else []
    identity = fingerprint(policy, config, datasets)
    first = load_state(folder, policy, optimizer, average, identity) if folder else 0
    measure = nn.L1Loss(reduction="none") if config.loss == "l1" else nn.MSELoss(reduction="none")
    batches = _batches(policy, samples, config, first)
    policy.train()
    with Journal(folder, config.steps, first, progress, policy.name) as journal:
        for step in range(first, config.steps):
            for group in optimizer.param_groups:
                group["lr"] = config.rate(step)
            samples.draw = (config.seed * 1_000_003 + step) % 2**63
            loss = policy.loss(samples, next(batches), measure)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if config.gradient_clip is not None:
                nn.utils.clip_grad_norm_(parameters, config.gradient_clip, foreach=True)
            optimizer.step()
            if average:  # the first decays are smaller, or the random first weights would linger
                torch._foreach_lerp_(
                    average, list[Tensor](parameters), 1 - min(config.average, (1 + step) / (10 + step))
                )
            done = step + 1
            if done % config.log_every == 0 or done == config.steps:
                journal.write(done, loss.item(), config.rate(step))
            if folder and done % config.save_every == 0 and done < config.steps:
                save_state(folder, policy, optimizer, average, done, identity)
            if done in config.checkpoints and done < config.steps:
                with _as_acting(policy, parameters, average, samples, config):
                    if folder:
                        policy.save(folder / "checkpoints" / f"step-{done:06d}")
                    if on_checkpoint:
                        on_checkpoint(done, policy)
    _finish(policy, parameters, average, samples, config)
    if on_checkpoint:
        on_checkpoint(config.steps, policy)


def _adam(parameters: list[nn.Parameter], learning_rate: float) -> torch.optim.Optimizer:
    """Adam in one fused pass where this torch has it for the CPU: a sixth of the time of the plain one."""
    try:
        return torch.optim.Adam(parameters, lr=learning_rate, fused=True)
    except RuntimeError:
        return torch.optim.Adam(parameters, lr=learning_rate)


def _batches(policy: NavPolicy, samples: Samples, config: TrainConfig, first: int) -> Iterator[Tensor]:
    """What each step is trained on: passes over the data in random order, a function of seed and step."""
    candidates = policy.candidates(samples)
    draws = policy.draws(samples, config.batch_size)
    step = first
    while True:
        if draws >= len(candidates):
            yield candidates
            continue
        chunk, offset = divmod(step, CHUNK)
        generator = torch.Generator().manual_seed(config.seed * 1_000_003 + chunk)
        passes = -(-CHUNK * draws // len(candidates))
        order = torch.cat([torch.randperm(len(candidates), generator=generator) for _ in range(passes)])
        for batch in candidates[order.to(candidates.device)][: CHUNK * draws].view(CHUNK, draws)[offset:]:
            yield batch
            step += 1


@torch.no_grad()
def _finish(
    policy: NavPolicy,
    parameters: list[nn.Parameter],
    average: list[Tensor],
    samples: Samples,
    config: TrainConfig,
) -> None:
    """From training to acting: averaged weights, exact statistics, evaluation mode."""
    for parameter, mean in zip(parameters, average, strict=False):
        parameter.copy_(mean)
    samples = policy.settle(samples)
    encoder = getattr(policy, "encoder", None)
    if config.exact_statistics and isinstance(encoder, nn.Module):
        recompute_statistics(encoder, policy.batches(samples, STATISTICS_BATCH))
    policy.eval()


@contextmanager
def _as_acting(
    policy: NavPolicy,
    parameters: list[nn.Parameter],
    average: list[Tensor],
    samples: Samples,
    config: TrainConfig,
) -> Iterator[None]:
    """The agent as it would act if training ended now; training goes on undisturbed afterwards."""
    kept = {name: tensor.clone() for name, tensor in policy.state_dict().items()}
    _finish(policy, parameters, average, samples, config)
    try:
        yield
    finally:
        policy.load_state_dict(kept)
        policy.train()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch on `count` threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
