"""Does an inverse dynamics model look at the future? Its actions for eight futures around typical states.

At each place the model is asked for the action that leads to each of eight states one step away, which the
physics reach with a full stick in that direction (less at a wall). Two numbers say how much it listened:

    turn    1 - length of the mean unit vector of the eight actions: 0 when all point the same way, 1 when they
            point all around
    gain    slope of the actions on the queried moves, both in stick units: 0 ignores the future, as behavior
            cloning does; 1 undoes the dynamics
"""

from __future__ import annotations

from collections.abc import Sequence
from colorsys import hsv_to_rgb
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from pidm_nav.analysis.gap import Gap, measure_gap
from pidm_nav.analysis.states import Array, Finding, Floats, Row, cluster_states, map_of, nearest, state_dataset
from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.plots import draw_room, panels, task_title
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.physics import SPEED, Physics, touches_many
from pidm_nav.world2d.state import current_goals, join_state, split_state

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pidm_nav.agents.agent import Agent
    from pidm_nav.agents.pidm import PIDM

# Right, then clockwise on the screen, as y points down.
DIRECTIONS = np.array([(1, 0), (1, 1), (0, 1), (-1, 1), (-1, 0), (-1, -1), (0, -1), (1, -1)], dtype=np.float64)
HUES = [hsv_to_rgb(i / 8, 1, 1) for i in range(8)]
PLACES = {"maze": 75, "multiroom": 75}
OTHER_PLACES = 50
ARROW = 42.0  # px of a full action in the figure


def check_field(agent: Agent | None, dataset: DemoDataset, places: int | None = None) -> None:
    """Refuse an agent, demonstrations or a number of places that no field can be measured with."""
    from pidm_nav.agents.pidm import PIDM

    map_of(dataset)
    if places is not None and not 1 <= places <= dataset.num_steps:
        raise ValueError(f"places is {places}: choose 1 to the number of steps, which is {dataset.num_steps}")
    states = state_dataset(dataset)
    if dataset.env_kwargs.get("relative_goals") or states.observation_dim != dataset.observation_dim:
        raise ValueError("the field needs demonstrations of full states: record them with the default options")
    if agent is None:
        return
    if not isinstance(agent, PIDM):
        raise ValueError(f"the agent is {agent.name}, which has no inverse dynamics model: give a pidm agent")
    trained = agent.description.get("task", dataset.task)
    if trained != dataset.task:
        raise ValueError(f"the agent learned {trained}, the demonstrations are of {dataset.task}: give one task")
    shape = dataset.episodes[0].observations.shape[1:]
    if agent.observation_space.shape != shape:
        takes = f"the agent takes observations of shape {agent.observation_space.shape}, not {shape}"
        raise ValueError(f"{takes}: give demonstrations like those it was trained on")


def futures_around(layout: Layout, states: Array) -> tuple[Array, Floats]:
    """Return full states (P, 8, D) one noise-free step away from full states (P, D), and the moves (P, 8, 2) there."""
    physics = Physics(layout, noise_std=0.0)
    positions, goals, reached = split_state(np.repeat(states, len(DIRECTIONS), axis=0))
    moved = physics.move_many(positions, np.tile(DIRECTIONS, (len(states), 1)), np.zeros_like(positions))
    touched = touches_many(moved, current_goals(goals, reached)) & (reached < goals.shape[1])
    futures = join_state(moved, goals, reached + touched)
    shape = len(states), len(DIRECTIONS), -1
    return futures.reshape(shape), (moved - positions).reshape(shape)


def measure_field(
    agent: Agent,
    dataset: DemoDataset,
    places: int | None = None,
    gap: Gap | None = None,
    *,
    rng: np.random.Generator,
) -> Finding:
    """Measure a trained model's actions around P typical states, and the gap there unless it is given.

    The number of places defaults to the paper's 75 for Maze and Multiroom and to 50 otherwise. A place is the state
    nearest to a cluster's center, as the center itself may lie in a wall or between two goals.
    """
    check_field(agent, dataset, places)
    states = state_dataset(dataset)
    found = cluster_states(states, places or PLACES.get(dataset.task, OTHER_PLACES), rng)
    every = states.transitions().state
    typical = every[nearest(found.centers, found.scale(every))]
    futures, moves = futures_around(map_of(states), typical)
    repeated = np.repeat(typical, len(DIRECTIONS), axis=0)
    model = cast("PIDM", agent)  # as was checked above
    actions = model.inverse_dynamics(repeated, futures.reshape(repeated.shape)).astype(np.float64).reshape(moves.shape)
    positions, _, reached = split_state(typical)
    place = {"x": positions[:, 0], "y": positions[:, 1], "goals_reached": reached}
    place |= {"delta": _delta_at(positions, reached, gap or measure_gap(states, rng=rng))}
    place |= {"turn": _turn(actions), "gain": _gain(moves, actions)}
    asked = {"move_x": moves[..., 0], "move_y": moves[..., 1]}
    asked |= {"action_x": actions[..., 0], "action_y": actions[..., 1]}
    return Finding(states, place | asked, {"places": len(typical), **_means(place)})


def _turn(actions: Floats) -> Floats:
    """Return how far apart the eight actions (P, 8, 2) of each place point (P,), from 0 to 1."""
    unit = actions / np.maximum(np.linalg.norm(actions, axis=2, keepdims=True), 1e-9)
    return np.asarray(1 - np.linalg.norm(unit.mean(axis=1), axis=1))


def _gain(moves: Floats, actions: Floats) -> Floats:
    """Return the least-squares slope (P,) of the actions (P, 8, 2) on the queried moves (P, 8, 2) in stick units."""
    moves = moves / SPEED
    moves = moves - moves.mean(axis=1, keepdims=True)
    actions = actions - actions.mean(axis=1, keepdims=True)
    return np.asarray((moves * actions).sum(axis=(1, 2)) / np.maximum((moves**2).sum(axis=(1, 2)), 1e-9))


def _means(columns: Row) -> Row:
    """Return the means of turn and gain, and their rank correlations with Delta(s)."""
    from scipy.stats import spearmanr

    row: Row = {}
    delta = columns["delta"]
    high = delta >= np.quantile(delta, 0.75)
    for name in ("turn", "gain"):
        values = columns[name]
        constant = np.ptp(values) == 0 or np.ptp(delta) == 0
        rank, p = (np.nan, np.nan) if constant else spearmanr(values, delta)
        row |= {
            f"mean_{name}": float(values.mean()),
            f"{name}_where_delta_large": float(values[high].mean()),  # the upper quarter of places
            f"{name}_elsewhere": float(values[~high].mean()) if not high.all() else float("nan"),
            f"{name}_spearman": float(rank),
            f"{name}_p": float(p),
        }
    return row


def _delta_at(positions: Floats, reached: Array, gap: Gap) -> Floats:
    """Return Delta(s) of places: that of the gap's clusters nearest to each, weighted by their samples."""
    x, y, flags, count, delta = (gap.columns[name] for name in ("x", "y", "goals_reached", "count", "delta"))
    clusters, own = np.column_stack([x, y, flags * 1e4]), np.column_stack([positions, reached * 1e4])
    owner = nearest(clusters, own)
    mass = np.bincount(owner, count, minlength=len(own))
    total = np.bincount(owner, count * delta, minlength=len(own))
    return np.where(mass > 0, total / np.maximum(mass, 1), delta[nearest(own, clusters)])


def plot_field(fields: Sequence[Finding]) -> Figure:
    """Draw arrows over the map, colored by the direction asked for, and dots colored by Delta(s)."""
    figure, axes = panels(len(fields))
    top = max(float(np.quantile(np.concatenate([field.columns["delta"] for field in fields]), 0.97)), 1e-9)
    arrows: Any = {"angles": "xy", "scale_units": "xy", "scale": 1, "headwidth": 3.5, "headlength": 4}
    dots: Any = {"s": 20, "cmap": "viridis", "vmin": 0, "vmax": top, "edgecolors": "white", "linewidths": 0.5}
    for ax, field in zip(axes, fields, strict=True):
        layout, columns, row = map_of(field.dataset), field.columns, field.summary()
        draw_room(ax, layout)
        place = columns["x"], columns["y"]
        full = ARROW * max(layout.room_size) / 800
        right, down = columns["action_x"] * full, columns["action_y"] * full
        for j in np.argsort(-np.abs(DIRECTIONS).sum(axis=1), kind="stable"):
            style: Any = {"color": HUES[j], "width": 0.0045, "headaxislength": 3.6, "zorder": 5}
            ax.quiver(*place, right[:, j], down[:, j], **style, **arrows)
        marks = ax.scatter(*place, c=columns["delta"], zorder=6, **dots)
        ax.set_title(f"{task_title(field.task)}, {field.demonstrator}", fontsize=12, loc="left", y=1.0)
        turns = f"turn {row['turn_where_delta_large']:.2f} where Δ is large, {row['turn_elsewhere']:.2f} elsewhere"
        ax.set_xlabel(f"{turns}; Spearman {row['turn_spearman']:.2f}", fontsize=9)
        _compass(ax)
    style = {"extend": "max", "shrink": 0.6, "aspect": 30, "location": "bottom", "pad": 0.02}
    figure.colorbar(marks, ax=axes, label="Δ(s) of the data (dots)", **style)
    return figure


def _compass(ax: Axes) -> None:
    """Show which hue asks for which direction, above the panel's right corner."""
    inset = ax.inset_axes((0.92, 1.0, 0.08, 0.08), zorder=10)
    unit = DIRECTIONS / np.linalg.norm(DIRECTIONS, axis=1, keepdims=True)
    inset.quiver(*np.zeros((2, 8)), *unit.T, color=HUES, angles="xy", scale_units="xy", scale=1, width=0.06)
    inset.text(-1.5, 0, "direction of the\nfuture asked for", ha="right", va="center", fontsize=7, linespacing=1.1)
    inset.set(xlim=(-1.25, 1.25), ylim=(1.25, -1.25), xticks=[], yticks=[], aspect="equal")
    inset.axis("off")
    inset.set_in_layout(False)  # it stands beside the title, which has its room already
