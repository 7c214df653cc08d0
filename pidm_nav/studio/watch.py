"""Policies that play the same episode side by side, with what they think drawn beside what they do."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.experts import EXPERTS
from pidm_nav.demos.recorder.players import Rival, make_rival
from pidm_nav.policies import load_named
from pidm_nav.rollout import Policy, Rollout
from pidm_nav.studio.folder import Folder, World, picture
from pidm_nav.world2d.physics import SPEED
from pidm_nav.world2d.state import POSITION, goals_of, join_state, split_state

MOST_PLAYERS = 3
RINGS, SPOKES = 3, 16  # futures around an agent that the inverse dynamics model is asked about
LOOK_AHEAD = 60  # demonstrated states that are drawn ahead of the nearest one


class Ask(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for players in a world; a seed chooses the episode and its noise."""

    world: World
    players: tuple[str, ...]
    seed: int = 0


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the person does while watching."""

    do: Literal["play", "pause", "step", "restart", "place"] | None = None
    speed: float | None = None
    seed: int | None = None
    at: tuple[float, float] | None = None  # where to place the players
    goals: int | None = None  # how many goals they have reached there
    field: bool | None = None  # whether to ask the inverse dynamics models about futures all around


class Mind:
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

    def thoughts(self, rollout: Rollout, field: bool) -> dict[str, Any]:
        """Return the action to come and, where the policy has them, the state it leads to and where that is from."""
        from pidm_nav.agents.predictors import Follow

        seen = rollout.states if self.sees_state else rollout.observation
        if self._decided is None:
            self._decided = self.policy.predict(seen, rollout.memory, rollout.steps == 0, True)
        action, memory = self._decided
        told = {"action": np.round(action[0], 3).tolist()}
        predictor = getattr(self.policy, "predictor", None)
        if predictor is not None:
            told["future"] = np.round(predictor.predict(seen, memory)[0, POSITION], 1).tolist()
            if field:
                told["field"] = self._ask_around(seen)
        source = self.policy if predictor is None else predictor  # what keeps the demonstrated states
        if isinstance(source, Follow):
            told["followed"] = np.round(_path(source.observations, int(memory[0])), 1).tolist()
        elif getattr(source, "index", None) is not None:
            told["followed"] = np.round(_path(source.states, int(source.index.query(seen)[0])), 1).tolist()
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

    def __init__(self, ask: Ask, folder: Folder) -> None:
        if not 1 <= len(ask.players) <= MOST_PLAYERS:
            raise ValueError(f"{len(ask.players)} players were chosen: choose 1 to {MOST_PLAYERS}")
        self.task, env_kwargs = ask.world.resolve()
        self.layout = self.task.layout(env_kwargs)
        if not self.task.shows_goals or self.layout is None:
            raise ValueError(f"{self.task.title} cannot be drawn from above: choose a 2D task")
        self._free = self.layout.free()
        chosen = [name if name in EXPERTS else load_named(str(folder.agent(name))) for name in ask.players]
        self.players = [make_rival(each, self.task, env_kwargs, ask.seed) for each in chosen]
        self.minds = [Mind(player.policy) for player in self.players]
        for player, mind in zip(self.players, self.minds, strict=True):
            player.policy = mind
        self.seed, self.playing, self.speed, self.field = self._seed(ask.seed), True, 1.0, False
        self.restart()

    @staticmethod
    def _seed(seed: int) -> int:
        if not 0 <= seed < 2**31:
            raise ValueError(f"the seed is {seed}: it must be between 0 and {2**31 - 1}")
        return seed

    def setup(self) -> dict[str, Any]:
        """Return what the page needs to know once."""
        titles = [player.name for player in self.players]
        return {"map": picture(self.layout), "task": self.task.name, "title": self.task.title, "players": titles}

    def obey(self, order: Order) -> None:
        """Do what the person asks for."""
        if order.speed is not None:
            self.speed = float(np.clip(np.nan_to_num(order.speed, nan=1.0), 0.1, 8.0))
        if order.field is not None:
            self.field = order.field
        if order.seed is not None:
            self.seed = self._seed(order.seed)
            self.restart()
        if order.do == "restart":
            self.restart()
        elif order.do == "place":
            self.place(order.at, order.goals)
        elif order.do == "step":
            self.playing = False
            self.step()
        elif order.do is not None:
            self.playing = order.do == "play"

    @property
    def done(self) -> bool:
        """Whether every player's episode has ended."""
        return all(player.rollout.done for player in self.players)

    def restart(self, state: NDArray[Any] | None = None) -> None:
        """Begin the episode anew, from its start or from a state."""
        for player, mind in zip(self.players, self.minds, strict=True):
            mind.forget()
            player.reset(self.seed, state)

    def step(self) -> None:
        """Let every player act once."""
        for player in self.players:
            player.step()

    def place(self, at: tuple[float, float] | None, goals_reached: int | None) -> None:
        """Begin the episode anew where the person put the players, in the nearest place that is free."""
        position, _, reached = split_state(self.players[0].state)
        goals = goals_of(self.players[0].state)
        count = int(reached) if goals_reached is None else int(np.clip(goals_reached, 0, len(goals) - 1))
        wanted = position if at is None else np.nan_to_num(np.array(at, np.float64))
        self.restart(join_state(self._free_place(wanted), goals, np.array(count)))

    def _free_place(self, wanted: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the place nearest to a wanted one where the agent touches no wall."""
        free = np.argwhere(self._free)
        return np.asarray(free[np.argmin(((free - wanted) ** 2).sum(axis=1))], np.float64)

    def report(self) -> dict[str, Any]:
        """Return what the page shows now."""
        return {
            "playing": self.playing,
            "done": self.done,
            "seed": self.seed,
            "players": [self._see(*each) for each in zip(self.players, self.minds, strict=True)],
        }

    def _see(self, player: Rival, mind: Mind) -> dict[str, Any]:
        shown: dict[str, Any] = {"steps": player.steps, "goals": player.goals_reached, "of": player.num_goals}
        shown |= {"state": np.round(player.state, 1).tolist(), "done": player.rollout.done}
        if not player.rollout.done:
            shown |= mind.thoughts(player.rollout, self.field)
        return shown


async def run(watch: Watch, send: Any) -> None:
    """Step at the person's speed for as long as the connection lasts."""
    clock = asyncio.get_running_loop().time
    due = clock()
    while True:
        if watch.playing and not watch.done:
            watch.step()
        await send(watch.report())
        due = max(due + 1 / (watch.task.fps * watch.speed), clock() - 0.1)
        await asyncio.sleep(max(due - clock(), 0))
