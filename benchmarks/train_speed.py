"""Time to a goal ratio of 0.9 on FourRoom: the `fast` preset next to a plain loop of the paper's recipe.

    python benchmarks/train_speed.py --demos four_room_human.npz --limit 300

Both train PIDM on the same demonstrations, one after the other, and are judged by the same rollouts. On one thread, the
default, times are processor time, so that other programs do not count; with more (`--threads 2`) they are
wall time. `fast` trains once, to its end. The plain loop is the recipe as published (batches of 4,096 or the whole set,
raw pixels, constant 1e-5, Adam; both states encoded apart, no fused optimizer); it is evaluated at growing numbers of
steps until it reaches 0.9 or the time limit. If it does not get there, its total is extrapolated from its measured time
per step to the paper's first checkpoint (5,000 steps), which is the least it could take.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

from pidm_nav.agents import PIDM, train
from pidm_nav.agents.networks import Encoder, Head
from pidm_nav.agents.predictors import NearestNeighbor
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats.npz import load_demos
from pidm_nav.rollouts.evaluation import evaluate

TARGET = 0.9
FIRST_CHECKPOINT = 5_000
Clock = Callable[[], float]


class PlainPIDM:
    """The recipe as one would write it down: nothing is shared with the package's loop but the layers."""

    def __init__(self, dataset: DemoDataset) -> None:
        torch.manual_seed(0)
        self.encoder, self.head = Encoder(dataset.observation_dim), Head(512, dataset.action_dim)
        self.parameters = [*self.encoder.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.Adam(self.parameters, lr=1e-5)
        data = dataset.transitions(1)
        self.data = [torch.tensor(part) for part in (data.state, data.future, data.action)]
        self.predictor = NearestNeighbor().fit(dataset)

    def step(self) -> None:
        """One gradient step on 4,096 random samples, or on all."""
        count = len(self.data[0])
        rows = torch.randint(count, (4096,)) if count > 4096 else torch.arange(count)
        state, future, action = (part[rows] for part in self.data)
        predicted = self.head(torch.cat([self.encoder(state), self.encoder(future)], dim=1))
        loss = nn.functional.l1_loss(predicted, action)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    @torch.no_grad()
    def predict(self, observation, state=None, episode_start=None, deterministic=True):  # type: ignore[no-untyped-def]
        """Actions for a batch."""
        self.encoder.eval()
        future = torch.tensor(self.predictor.predict(observation))
        embedded = [self.encoder(torch.tensor(observation)), self.encoder(future)]
        self.encoder.train()
        return self.head(torch.cat(embedded, dim=1)).numpy(), state


def time_fast(dataset: DemoDataset, threads: int, clock: Clock) -> tuple[float, float]:
    began = clock()
    agent = train("pidm", dataset, "fast", threads=threads)
    seconds = clock() - began
    ratio = evaluate(agent, "four-room", episodes=50).mean_goal_ratio
    steps = PIDM.preset("fast").training.steps
    print(
        f"fast   {steps:6,d} steps  {seconds:8.1f} s  {1e3 * seconds / steps:6.1f} ms per step  goal ratio {ratio:.2f}"
    )
    return seconds, ratio


def time_plain(dataset: DemoDataset, limit: float, clock: Clock) -> float:
    plain = PlainPIDM(dataset)
    seconds, done = 0.0, 0
    for target in (100, 200, 500, 1_000, 2_000, FIRST_CHECKPOINT, 10_000, 20_000, 50_000, 100_000):
        while done < target and seconds < limit:
            began = clock()
            plain.step()
            seconds += clock() - began
            done += 1
        ratio = evaluate(plain, "four-room", episodes=50).mean_goal_ratio
        each = seconds / done
        print(
            f"plain  {done:6,d} steps  {seconds:8.1f} s  {1e3 * each:6.1f} ms per step  goal ratio {ratio:.2f}",
            flush=True,
        )
        if ratio >= TARGET:
            return seconds
        if seconds >= limit:
            print(f"plain  stopped at the limit; {FIRST_CHECKPOINT:,} steps would take {each * FIRST_CHECKPOINT:.0f} s")
            return each * max(FIRST_CHECKPOINT, done)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demos", default="four-room/human-like", help="demonstrations of FourRoom")
    parser.add_argument("--num-demos", type=int, default=5)
    parser.add_argument("--limit", type=float, default=120.0, help="seconds of training for the plain loop")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    clock = time.process_time if arguments.threads == 1 else time.perf_counter
    dataset = load_demos(arguments.demos).sample(arguments.num_demos, seed=0)
    print(f"{len(dataset)} demonstrations, {dataset.num_steps} steps, {arguments.threads} thread(s)")
    fast, ratio = time_fast(dataset, arguments.threads, clock)
    plain = time_plain(dataset, arguments.limit, clock)
    if ratio < TARGET:
        print(f"fast ended at {ratio:.2f}, below {TARGET}: this run says nothing about the time to get there")
    else:
        print(f"the plain loop takes {plain / fast:.0f} times as long")


if __name__ == "__main__":
    main()
