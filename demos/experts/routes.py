"""Where a player looks on the way to a goal: the farthest point in sight along a comfortable route.

Routes are shortest paths over a coarse grid on which the neighbourhood of walls costs extra, so that corners are
rounded, and on which each taste finds other areas a little longer, so that players differ in the way they go.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from math import gcd

import numpy as np
from numpy.typing import NDArray

from pidm_nav.world2d.layout import Layout

# Per taste: pixels within which walls are felt, how much they are, and how far ahead the player looks.
TASTES = ((40.0, 2.5, 90.0), (55.0, 3.0, 90.0), (30.0, 1.5, 110.0), (45.0, 3.0, 110.0))
UNEVEN = 0.2
"""How much the tastes differ about areas: standard deviation of the log of their cost."""
AREA = 72.0
"""Size of these areas, in pixels."""
PITCHES = (8, 4, 2)
"""Pixels between the grid's points: the first that fits through the map's doors."""
REMEMBERED = 256
"""Goals whose tables are kept, at about half a megabyte each."""

HOPS = [(x, y) for x in range(-2, 3) for y in range(-2, 3) if gcd(x, y) == 1]  # 16 directions

FloatArray = NDArray[np.float64]


class Routes:
    """The points to steer for in one layout, for each taste."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.free = layout.free()
        for pitch in PITCHES:
            self.pitch = pitch
            self.nodes = self.free[::pitch, ::pitch]
            width, height = self.nodes.shape
            grid = np.meshgrid(np.arange(width) * pitch, np.arange(height) * pitch, indexing="ij")
            self.points = np.stack(grid, axis=-1).reshape(-1, 2).astype(np.float64)  # (nodes, 2)
            self._build_graphs()
            if self._connected():
                break
        self._aims: OrderedDict[tuple[float, float], FloatArray] = OrderedDict()

    def look(self, positions: FloatArray, goals: FloatArray) -> FloatArray:
        """(N, tastes, 2): the point each taste steers for from a position (N, 2) towards a goal (N, 2)."""
        limit = np.array(self.nodes.shape) - 1
        x, y = np.clip(np.rint(positions / self.pitch), 0, limit).astype(np.intp).T
        targets, group = np.unique(goals, axis=0, return_inverse=True)
        aims = np.empty((len(positions), len(TASTES), 2))
        for index, target in enumerate(targets.tolist()):
            rows = np.flatnonzero(group.ravel() == index)
            aims[rows] = self._table((target[0], target[1]), len(targets))[x[rows], y[rows]]
        return aims

    def _table(self, goal: tuple[float, float], keep: int) -> FloatArray:
        """(width, height, tastes, 2) aims over the grid towards one goal."""
        if goal not in self._aims:
            self._aims[goal] = np.stack([self._aim(taste, goal) for taste in range(len(TASTES))], axis=2)
            while len(self._aims) > max(keep, REMEMBERED):
                self._aims.popitem(last=False)
        self._aims.move_to_end(goal)
        return self._aims[goal]

    def _build_graphs(self) -> None:
        """One graph a taste over the grid's points, with the cost of each hop."""
        from scipy.ndimage import distance_transform_edt, gaussian_filter
        from scipy.sparse import csr_array

        pitch, nodes = self.pitch, self.nodes
        clearance = distance_transform_edt(np.pad(self.free, 1))[1:-1:pitch, 1:-1:pitch].ravel()
        start, end, length = self._hops()
        self._graphs = []
        for taste, (reach, weight, _) in enumerate(TASTES):
            rng = np.random.default_rng(2 * taste)  # of these, three go round Zigzag's last block as people do
            areas = gaussian_filter(rng.standard_normal(nodes.shape), AREA / pitch, mode="reflect").ravel()
            slowness = np.exp(UNEVEN * areas / areas.std()) * (1 + weight * np.exp(-3 * clearance / reach))
            cost = length * (slowness[start] + slowness[end]) / 2
            self._graphs.append(csr_array((cost, (start, end)), shape=(nodes.size, nodes.size)))

    def _hops(self) -> tuple[NDArray[np.int64], NDArray[np.int64], FloatArray]:
        """Start, end and length of every hop between grid points that no wall is in the way of."""
        width, height = self.nodes.shape
        index = np.arange(width * height).reshape(width, height)
        parts = []
        for x, y in HOPS:
            first = index[max(0, -x) : width - max(0, x), max(0, -y) : height - max(0, y)].ravel()
            last = first + x * height + y
            open_way = self._in_sight(self.points[first], self.points[last], samples=4)
            open_way &= self.nodes.ravel()[first]
            parts.append((first[open_way], last[open_way], np.full(open_way.sum(), np.hypot(x, y) * self.pitch)))
        start, end, length = (np.concatenate(column) for column in zip(*parts, strict=True))
        return start, end, length

    def _connected(self) -> bool:
        """Whether the grid has a way from each start to each goal."""
        from scipy.sparse.csgraph import connected_components

        _, region = connected_components(self._graphs[0], directed=False)
        places = np.concatenate([self.layout.starts, self.layout.goals])
        return len({int(region[self._nearest_node(place)]) for place in places}) == 1

    def _nearest_node(self, place: FloatArray) -> int:
        distance = np.hypot(*(self.points - place).T)
        distance[~self.nodes.ravel()] = np.inf
        return int(distance.argmin())

    def _aim(self, taste: int, goal: tuple[float, float]) -> FloatArray:
        """(width, height, 2): from each grid point the farthest point in sight on the route, or the goal."""
        from scipy.ndimage import distance_transform_edt
        from scipy.sparse.csgraph import dijkstra

        place = np.array(goal)
        end = self._nearest_node(place)
        cost, onwards = dijkstra(self._graphs[taste], indices=end, return_predecessors=True)
        onwards = np.where(onwards < 0, np.arange(len(onwards)), onwards)
        points = self.points.copy()
        points[end] = place
        node = onwards.copy()
        aim = points[node]
        looking = np.flatnonzero(np.isfinite(cost))
        for hops in range(2, int(TASTES[taste][2] / self.pitch)):
            node[looking] = onwards[node[looking]]
            seen = self._in_sight(self.points[looking], points[node[looking]], samples=2 * hops)
            looking = looking[seen]
            aim[looking] = points[node[looking]]
        shape = self.nodes.shape
        unknown = ~np.isfinite(cost).reshape(shape)  # points in walls: what the nearest known one aims for
        x, y = distance_transform_edt(unknown, return_distances=False, return_indices=True)
        aims: FloatArray = aim.reshape(*shape, 2)[x, y]
        return aims

    def _in_sight(self, start: FloatArray, end: FloatArray, samples: int) -> NDArray[np.bool_]:
        """(N,) whether the box can go straight from start to end."""
        seen = np.ones(len(start), dtype=bool)
        way = end - start
        for part in np.linspace(0, 1, samples + 1)[1:]:
            x, y = np.rint(start + part * way).astype(np.intp).T
            seen &= self.free[x, y]
        return seen


@lru_cache(maxsize=8)
def routes_for(layout: Layout) -> Routes:
    """The routes all players on this map share."""
    return Routes(layout)
