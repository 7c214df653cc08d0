"""Does an inverse dynamics model look at the future? Its actions for eight futures around typical states.

At each place the model is asked for the action that leads to each of eight states one step away, which the
physics reach with a full stick in that direction (less at a wall). Two numbers say how much it listened:

    turn    1 - length of the mean unit vector of the eight actions: 0 when all point the same way, 1 when they
            point all around
    gain    slope of the actions on the queried moves, both in stick units: 0 ignores the future, as behaviour
            cloning does; 1 undoes the dynamics
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.analysis import figures
from pidm_nav.analysis.clusters import cluster_states, state_dataset
from pidm_nav.analysis.gap import Gap, measure_gap
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.replay import demo_layout
from pidm_nav.tasks import TASKS, join_state, split_state
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.physics import SPEED, Physics

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pidm_nav.agents.pidm import PIDM
    from pidm_nav.agents.policy import NavPolicy

Array = NDArray[Any]
Floats = NDArray[np.float64]
ANGLES = np.arange(8) * np.pi / 4  # right, then clockwise on the screen, as y points down
DIRECTIONS = np.round(np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1) * np.sqrt(2)).clip(-1, 1)
PLACES = {"maze": 75, "multiroom": 75}
OTHER_PLACES = 50
ARROW = 42.0  # px of a full action in the figure


@dataclass(frozen=True, eq=False)
class Field:
    """An inverse dynamics model's actions at P places."""

    task: str
    demonstrator: str
    layout: Layout
    states: Array  # (P, D) full states
    moves: Floats  # (P, 8, 2) px to the queried futures
    actions: Floats  # (P, 8, 2)
    delta: Floats  # (P,) Delta(s) there: mean over the states nearest to the place

    @property
    def turn(self) -> Floats:
        """(P,) how far apart the eight actions point, from 0 to 1."""
        length = np.linalg.norm(self.actions, axis=2, keepdims=True)
        unit = self.actions / np.maximum(length, 1e-9)
        apart: Floats = 1 - np.linalg.norm(unit.mean(axis=1), axis=1)
        return apart

    @property
    def gain(self) -> Floats:
        """(P,) least-squares slope of the actions on the queried moves in stick units."""
        moves = self.moves / SPEED
        moves = moves - moves.mean(axis=1, keepdims=True)
        actions = self.actions - self.actions.mean(axis=1, keepdims=True)
        slope: Floats = (moves * actions).sum(axis=(1, 2)) / np.maximum((moves**2).sum(axis=(1, 2)), 1e-9)
        return slope

    def summary(self) -> figures.Row:
        """One row: means, and rank correlations with Delta(s)."""
        from scipy.stats import spearmanr

        row: figures.Row = {"task": self.task, "demonstrator": self.demonstrator, "places": len(self.states)}
        high = self.delta >= np.quantile(self.delta, 0.75)
        for name, values in (("turn", self.turn), ("gain", self.gain)):
            constant = np.ptp(values) == 0 or np.ptp(self.delta) == 0
            rank = None if constant else spearmanr(values, self.delta)
            row |= {
                f"mean_{name}": float(values.mean()),
                f"{name}_where_delta_large": float(values[high].mean()),  # the upper quarter of places
                f"{name}_elsewhere": float(values[~high].mean()) if not high.all() else float("nan"),
                f"{name}_spearman": float(rank.statistic) if rank else float("nan"),
                f"{name}_p": float(rank.pvalue) if rank else float("nan"),
            }
        return row

    def rows(self) -> list[figures.Row]:
        """One row a place and direction."""
        positions, _, reached = split_state(self.states)
        names = {"task": self.task, "demonstrator": self.demonstrator}
        return [
            {
                **names,
                "x": float(positions[i, 0]),
                "y": float(positions[i, 1]),
                "goals_reached": int(reached[i]),
                "delta": float(self.delta[i]),
                "turn": float(self.turn[i]),
                "gain": float(self.gain[i]),
                "move_x": float(self.moves[i, j, 0]),
                "move_y": float(self.moves[i, j, 1]),
                "action_x": float(self.actions[i, j, 0]),
                "action_y": float(self.actions[i, j, 1]),
            }
            for i in range(len(self.states))
            for j in range(len(DIRECTIONS))
        ]


def inverse_dynamics_of(agent: NavPolicy, dataset: DemoDataset) -> PIDM:
    """The agent, if it has an inverse dynamics model for states like the dataset's."""
    from pidm_nav.agents.pidm import PIDM

    if not isinstance(agent, PIDM):
        raise ValueError(f"the agent is {agent.name}, which has no inverse dynamics model: give a pidm agent")
    trained = agent.description.get("task", dataset.task)
    if trained != dataset.task:
        raise ValueError(f"the agent learned {trained}, the demonstrations are of {dataset.task}: give one task")
    shape = dataset.episodes[0].observations.shape[1:]
    if agent.observation_space.shape != shape:
        raise ValueError(
            f"the agent takes observations of shape {agent.observation_space.shape}, not {shape}: "
            "give demonstrations like those it was trained on"
        )
    return agent


def futures_around(layout: Layout, states: Array) -> tuple[Array, Floats]:
    """Full states (P, 8, D) one noise-free step away from full states (P, D), and the moves (P, 8, 2) there."""
    physics = Physics(layout, noise_std=0.0)
    positions, goals, reached = split_state(np.repeat(states, len(DIRECTIONS), axis=0))
    x, y = positions.T.copy()
    right, down = np.tile(DIRECTIONS, (len(states), 1)).T
    still = np.zeros_like(x)
    moved = np.stack(physics.move(x, y, right, down, still, still), axis=1)
    current = goals[np.arange(len(goals)), np.minimum(reached, goals.shape[1] - 1)]
    touched = physics.touches(*moved.T, *current.T) & (reached < goals.shape[1])
    futures = join_state(moved, goals, reached + touched)
    shape = len(states), len(DIRECTIONS), -1
    return futures.reshape(shape), (moved - positions).reshape(shape)


def measure_field(
    agent: NavPolicy,
    dataset: DemoDataset,
    places: int | None = None,
    gap: Gap | None = None,
    *,
    rng: np.random.Generator,
) -> Field:
    """A trained model's actions around typical states.

    Args:
        agent: one with an inverse dynamics model.
        dataset: demonstrations whose states are clustered; observations must be full states.
        places: clusters; by default the paper's 75 for Maze and Multiroom and 50 otherwise. A place is the state
            nearest to a centroid, as the centroid itself may lie in a wall or between two goals.
        gap: Delta(s) of the dataset; by default measured with 500 clusters, or fewer for little data.
        rng: draws the clusters.
    """
    if dataset.task not in TASKS and dataset.task != "custom":
        raise ValueError(f"demonstrations of '{dataset.task}' have no map to draw: use a navigation task")
    states = state_dataset(dataset)
    if dataset.env_kwargs.get("relative_goals") or states.observation_dim != dataset.observation_dim:
        raise ValueError("the field needs demonstrations that observe full states: these do not")
    model = inverse_dynamics_of(agent, dataset)
    places = places or PLACES.get(dataset.task, OTHER_PLACES)
    found = cluster_states(states, places, rng)
    transitions = states.transitions()
    chosen = _nearest(found.centres, found.scale(transitions.state))
    typical = transitions.state[chosen]
    layout = demo_layout(states)
    futures, moves = futures_around(layout, typical)
    repeated = np.repeat(typical, len(DIRECTIONS), axis=0)
    actions = model.inverse_dynamics(repeated, futures.reshape(repeated.shape)).astype(np.float64)
    if gap is None:
        gap = measure_gap(states, min(500, states.num_steps // 4), rng=rng)
    # Delta(s) of a place is that of the gap's clusters nearest to it, each as often as it has samples
    where = np.concatenate([gap.positions, gap.goals_reached[:, None] * 1e4], axis=1)
    own = np.concatenate([typical[:, :2], split_state(typical)[2][:, None] * 1e4], axis=1)
    owner = _nearest(where, own)
    mass = np.bincount(owner, gap.parts.count, minlength=len(own))
    total = np.bincount(owner, gap.parts.count * gap.parts.delta, minlength=len(own))
    direct = gap.parts.delta[_nearest(own, where)]
    delta = np.where(mass > 0, total / np.maximum(mass, 1), direct)
    who = figures.demonstrator(dataset)
    return Field(dataset.task, who, layout, typical, moves, actions.reshape(moves.shape), delta)


def _nearest(points: Array, candidates: Array) -> NDArray[np.int64]:
    """For each point the index of its nearest candidate."""
    from scipy.spatial import cKDTree

    return np.asarray(cKDTree(candidates).query(points)[1], dtype=np.int64)


def plot_field(fields: Sequence[Field]) -> Figure:
    """Arrows over the map, coloured by the direction asked for; dots by Delta(s)."""
    figure, axes = figures.panels(len(fields))
    top = max(float(np.quantile(np.concatenate([field.delta for field in fields]), 0.97)), 1e-9)
    for ax, field in zip(axes, fields, strict=True):
        figures.draw_room(ax, field.layout)
        positions = split_state(field.states)[0]
        scale = ARROW * max(field.layout.room_size) / 800
        hues = _direction_colours()
        for j in np.argsort(-np.abs(DIRECTIONS).sum(axis=1), kind="stable"):
            ax.quiver(
                *positions.T, *(field.actions[:, j] * scale).T, color=hues[j], angles="xy", scale_units="xy",
                scale=1, width=0.0045, headwidth=3.5, headlength=4, headaxislength=3.6, zorder=5,
            )  # fmt: skip
        marks = ax.scatter(
            positions[:, 0], positions[:, 1], s=20, c=field.delta, vmin=0, vmax=top, cmap="viridis",
            edgecolors="white", linewidths=0.5, zorder=6,
        )  # fmt: skip
        row = field.summary()
        ax.set_title(f"{figures.title(field.task)}, {field.demonstrator}", fontsize=12, y=1.0)
        ax.set_xlabel(
            f"turn {row['turn_where_delta_large']:.2f} where Δ is large, {row['turn_elsewhere']:.2f} elsewhere; "
            f"Spearman {row['turn_spearman']:.2f}",
            fontsize=9,
        )
        _compass(ax)
    figure.colorbar(
        marks, ax=axes, label="Δ(s) of the data (dots)", extend="max", shrink=0.6, aspect=30,
        location="bottom", pad=0.02,
    )  # fmt: skip
    return figure


def _direction_colours() -> list[Any]:
    """Eight hues around the circle."""
    from matplotlib import colormaps

    return [colormaps["hsv"](angle / (2 * np.pi)) for angle in ANGLES]


def _compass(ax: Axes) -> None:
    """Which hue asks for which direction, above the panel's right corner."""
    inset = ax.inset_axes((0.92, 1.0, 0.08, 0.08), zorder=10)
    inset.quiver(
        np.zeros(8), np.zeros(8), *(DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)).T,
        color=_direction_colours(), angles="xy", scale_units="xy", scale=1, width=0.06,
    )  # fmt: skip
    inset.set(xlim=(-1.25, 1.25), ylim=(1.25, -1.25), xticks=[], yticks=[], aspect="equal")
    inset.axis("off")
    inset.set_in_layout(False)  # it stands beside the title, which has its room already
