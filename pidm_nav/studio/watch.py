"""Policies that play the same episode side by side, with their predictions and next actions."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.experts import EXPERTS
from pidm_nav.demos.recorder.players import Rival
from pidm_nav.limits import MAX_SEED, check_number
from pidm_nav.policies import load_named, make_rival
from pidm_nav.rollouts.rollout import Policy, Rollout
from pidm_nav.seeds import TEST
from pidm_nav.studio.folder import Folder, WorldRequest, picture
from pidm_nav.studio.play import describe
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.state import POSITION, goals_of, join_state, split_state

MAX_PLAYERS = 3
RINGS, SPOKES = 3, 16  # futures around an agent that the inverse dynamics model is asked about
MAX_ORDERS = 256  # that wait for the next step; a drag asks for about forty at the lowest speed
LOOK_AHEAD = 60  # demonstrated states that are drawn ahead of the nearest one


class WatchRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for players in a world; a seed chooses the episode and its noise."""

    world: WorldRequest
    players: tuple[str, ...]
    seed: int = TEST.start


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the person asks for while watching."""

    do: Literal["play", "pause", "step", "restart", "place"] | None = None
    speed: float | None = None
    seed: int | None = None
    at: tuple[float, float] | None = None  # where to place the players
    goals: int | None = None  # how many goals they have reached there
    field: bool | None = None  # whether to ask the inverse dynamics models about futures all around


class CachedPolicy:
    """A policy that decides once per state, so that what it is about to do can be shown before it does it."""

    def __init__(self, policy: Policy) -> None:
        self.policy: Any = policy
        self.sees_state = getattr(policy, "sees_state", False)
        self._decided: tuple[Any, Any] | None = None

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = True
    ) -> tuple[Any, Any]:
        """Return the decision that was shown, or decide now."""
        decided = self._decided or self.policy.predict(observation, state, episode_start, deterministic)
        self._decided = None
        return decided

    def forget(self) -> None:
        """Drop a decision, because the state has been changed."""
        self._decided = None

    def explain(self, rollout: Rollout, field: bool) -> dict[str, Any]:
        """Return the action to come and, where the policy has them, the state it leads to and where that is from."""
        from pidm_nav.agents.predictors import Lookup
        from pidm_nav.agents.retrieval import RetrievalBC

        seen = rollout.states if self.sees_state else rollout.observation
        if self._decided is None:
            self._decided = self.policy.predict(seen, rollout.memory, rollout.steps == 0, True)
        action, _ = self._decided
        told = {"action": np.round(action[0], 3).tolist()}
        if seen.ndim != 2:  # what a policy predicts from images cannot be drawn
            return told
        predictor = getattr(self.policy, "predictor", None)
        begins = rollout.steps == 0
        if predictor is not None:
            futures, _ = predictor.predict(seen, rollout.memory, begins)
            told["future"] = np.round(futures[0, POSITION], 1).tolist()
            if field:
                told["field"] = self._ask_around(seen)
        place: tuple[NDArray[Any], int] | None = None  # the demonstrated states, and the row that the policy goes by
        if isinstance(predictor, Lookup):
            place = predictor.observations, int(predictor.locate(seen, rollout.memory, begins)[0][0])
        elif isinstance(self.policy, RetrievalBC) and self.policy.index is not None:
            place = self.policy.states, int(self.policy.index.query(seen)[0][0, 0])
        if place is not None:
            told["nearest"] = np.round(place[0][place[1], POSITION], 1).tolist()
            told["followed"] = np.round(_path(*place), 1).tolist()
        return told

    def _ask_around(self, seen: NDArray[Any]) -> list[list[float]]:
        """Return the inverse dynamics model's actions for futures around: dx, dy in pixels and the action."""
        angles = np.linspace(0, 2 * np.pi, SPOKES, endpoint=False)
        reach = SPEED * np.arange(1, RINGS + 1) / RINGS
        moves = np.stack([np.outer(reach, np.cos(angles)), np.outer(reach, np.sin(angles))], axis=-1).reshape(-1, 2)
        now = np.repeat(seen, len(moves), axis=0)
        futures = now.copy()
        futures[:, POSITION] += moves
        actions = self.policy.inverse_dynamics(now, futures)
        rows: list[list[float]] = np.round(np.hstack([moves, actions]), 3).tolist()
        return rows


def _path(states: NDArray[Any], row: int) -> NDArray[Any]:
    """Return the demonstrated positions from a row on, up to the end of its episode."""
    ahead = states[row : row + LOOK_AHEAD]
    jumps = np.abs(np.diff(ahead[:, POSITION], axis=0)).max(axis=1, initial=0) > 2 * SPEED
    return ahead[: int(np.argmax(jumps)) + 1 if jumps.any() else len(ahead), POSITION]


class Watch:
    """The players of an episode; each makes one step per tick, with the same noise."""

    over, quick = False, False  # agents and engines take milliseconds, and the person ends it by leaving

    def __init__(self, request: WatchRequest, folder: Folder) -> None:
        if not 1 <= len(request.players) <= MAX_PLAYERS:
            raise ValueError(f"{len(request.players)} players were chosen: choose 1 to {MAX_PLAYERS}")
        self.task, env_kwargs = request.world.resolve()
        self.layout = self.task.layout(env_kwargs) if self.task.has_2d_state else None
        self._free = None if self.layout is None else np.argwhere(self.layout.free())
        mode = "rgb_array" if self.layout is None else None
        chosen = [name if name in EXPERTS else load_named(str(folder.agent(name))) for name in request.players]
        check_number("the seed", request.seed, 0, MAX_SEED)
        self.seed, self.playing, self.speed, self.field = request.seed, True, 1.0, False
        self.orders = deque([Order()])  # the first tick shows the start
        self.players: list[Rival] = []
        self.policies: list[CachedPolicy] = []
        try:
            for each in chosen:
                self.players.append(make_rival(each, self.task, env_kwargs, request.seed, mode))
            self.policies += [CachedPolicy(player.policy) for player in self.players]
            for player, policy in zip(self.players, self.policies, strict=True):
                player.policy = policy
            self.restart()
            self.picture()  # an environment that draws none says so here
        except BaseException:
            self.close()
            raise

    def setup(self) -> dict[str, Any]:
        """Return what the page needs to know once."""
        return {"map": picture(self.layout), "titles": [player.name for player in self.players]}

    def receive(self, order: Order) -> None:
        """Take in what the person asks for."""
        if len(self.orders) >= MAX_ORDERS:
            raise ValueError("too many requests are waiting: watch again, at a lower speed")
        self.orders.append(order)

    def _obey(self, order: Order) -> None:
        if order.speed is not None:
            self.speed = float(np.clip(order.speed, 0.1, 8.0))
        if order.field is not None:
            self.field = order.field
        if order.seed is not None:
            check_number("the seed", order.seed, 0, MAX_SEED)
            self.seed = order.seed
            self.restart()
        if order.do == "restart":
            self.restart()
        elif order.do == "place" and self._free is not None:
            self.place(order.at, order.goals, self._free)
        elif order.do == "step":
            self.playing = False
            self.step()
        elif order.do is not None:
            self.playing = order.do == "play"

    @property
    def fps(self) -> float:
        """Steps per second."""
        return self.task.fps * self.speed

    @property
    def done(self) -> bool:
        """Whether every player's episode has ended."""
        return all(player.rollout.done for player in self.players)

    def restart(self, state: NDArray[Any] | None = None) -> None:
        """Begin the episode anew, from its start or from a state."""
        for player, policy in zip(self.players, self.policies, strict=True):
            policy.forget()
            player.reset(self.seed, state)

    def tick(self) -> None:
        """Do what the person asked for, and make a step if the players are playing."""
        if not self.orders and self.playing:
            self.step()
        while self.orders:  # more may come meanwhile
            self._obey(self.orders.popleft())

    def step(self) -> None:
        """Let every player act once."""
        for player in self.players:
            player.step()

    def picture(self) -> NDArray[np.uint8] | None:
        """Return what the players see, side by side, unless the page draws it."""
        return None if self.layout else np.hstack([player.rollout.picture(0) for player in self.players])

    def close(self) -> None:
        """Close the environments."""
        for player in self.players:
            player.env.close()

    def place(self, at: tuple[float, float] | None, goals_reached: int | None, free: NDArray[np.int64]) -> None:
        """Begin the episode anew where the person put the players, in the nearest place that is free (N, 2)."""
        position, _, reached = split_state(self.players[0].state)
        goals = goals_of(self.players[0].state)
        count = int(reached) if goals_reached is None else int(np.clip(goals_reached, 0, len(goals) - 1))
        wanted = position if at is None else np.array(at)
        nearest = free[np.argmin(((free - wanted) ** 2).sum(axis=1))]
        self.restart(join_state(nearest.astype(np.float64), goals, np.array(count)))

    def report(self) -> dict[str, Any]:
        """Return what the page shows now."""
        return {
            "playing": self.playing,
            "done": self.done,
            "seed": self.seed,
            "players": [self._describe(*each) for each in zip(self.players, self.policies, strict=True)],
        }

    def _describe(self, player: Rival, policy: CachedPolicy) -> dict[str, Any]:
        shown = describe(player, self.layout) | {"done": player.rollout.done}
        return shown if player.rollout.done else shown | policy.explain(player.rollout, self.field)
