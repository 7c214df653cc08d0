"""Routes of human-like players: the farthest visible point on a comfortable route to a goal.

Routes are shortest paths over a coarse grid. Points near walls cost more, so that corners are rounded. Each taste has
other costs of areas, so that players take different routes.
"""

from __future__ import annotations

from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.experts.expert import Tables
from pidm_nav.limits import CACHE_BYTES, cache_by_bytes
from pidm_nav.world2d.layout import Layout

# per taste: range and weight of the cost of walls, and how far ahead the player looks; ranges in pixels
TASTES = ((40.0, 2.5, 90.0), (55.0, 3.0, 90.0), (30.0, 1.5, 110.0), (45.0, 3.0, 110.0))
UNEVEN = 0.2  # standard deviation of the log cost of areas between tastes
AREA = 72.0  # size of these areas in pixels
PITCHES = (8, 4, 2)  # pixels between the grid's points: the first that fits through the map's doors
REMEMBERED = 256  # goals whose tables are kept, about half a megabyte each, unless the map is huge
HOPS = [(x, y) for x in range(-2, 3) for y in range(-2, 3) if gcd(x, y) == 1]  # 16 directions

FloatArray = NDArray[np.floating[Any]]


class Routes:
    """Targets in one map, for each taste."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.free = layout, layout.free()
        for pitch in PITCHES:
            self.pitch, self.nodes = pitch, self.free[::pitch, ::pitch]
            self.points = np.argwhere(np.ones_like(self.nodes)) * float(pitch)  # (nodes, 2)
            self._build_graphs()
            if self._connected():
                break
        self._table_bytes = self.points.nbytes * len(TASTES)
        self._tables = Tables(self._make_table, min(REMEMBERED, CACHE_BYTES // self._table_bytes))

    def nbytes(self) -> int:
        """Return the approximate bytes of the graphs and the tables."""
        return self._table_bytes * (len(HOPS) + len(self._tables))

    def look(self, positions: FloatArray, goals: FloatArray) -> FloatArray:
        """Return the target (N, tastes, 2) of each taste from a position (N, 2) to a goal (N, 2)."""
        limit = np.array(self.nodes.shape) - 1
        x, y = np.clip(np.rint(positions / self.pitch), 0, limit).astype(np.intp).T
        aims = np.empty((len(positions), len(TASTES), 2))
        for rows, table in self._tables.towards(goals):
            aims[rows] = table[x[rows], y[rows]]
        return aims

    def _build_graphs(self) -> None:
        """Build one graph per taste over the grid's points, with the costs of all hops that no wall blocks."""
        from scipy.ndimage import distance_transform_edt, gaussian_filter
        from scipy.sparse import csr_array

        pitch, (width, height) = self.pitch, self.nodes.shape
        index = np.arange(width * height, dtype=np.int32).reshape(width, height)  # SciPy 1.11 needs int32
        hops = []
        for x, y in HOPS:
            first = index[max(0, -x) : width - max(0, x), max(0, -y) : height - max(0, y)].ravel()
            hops.append([first, first + x * height + y])
        start, end = np.concatenate(hops, axis=1)
        way = self.nodes.ravel()[start] & self._in_sight(self.points[start], self.points[end], samples=4)
        start, end = start[way], end[way]
        length = np.hypot(*(self.points[end] - self.points[start]).T)
        clearance = distance_transform_edt(np.pad(self.free, 1))[1:-1:pitch, 1:-1:pitch].ravel()
        self._graphs = []
        for taste, (reach, weight, _) in enumerate(TASTES):
            rng = np.random.default_rng(2 * taste)  # with these seeds, three pass Zigzag's last block as people do
            areas = gaussian_filter(rng.standard_normal((width, height)), AREA / pitch, mode="reflect").ravel()
            slowness = np.exp(UNEVEN * areas / areas.std()) * (1 + weight * np.exp(-3 * clearance / reach))
            cost = length * (slowness[start] + slowness[end]) / 2
            self._graphs.append(csr_array((cost, (start, end)), shape=(index.size, index.size)))

    def _connected(self) -> bool:
        """Return whether the grid connects all starts and goals."""
        from scipy.sparse.csgraph import connected_components

        _, region = connected_components(self._graphs[0], directed=False)
        places = np.concatenate([self.layout.starts, self.layout.goals])
        return len({int(region[self._nearest_node(place)]) for place in places}) == 1

    def _nearest_node(self, place: FloatArray) -> int:
        distance = np.hypot(*(self.points - place).T)
        distance[~self.nodes.ravel()] = np.inf
        return int(distance.argmin())

    def _make_table(self, *goal: float) -> FloatArray:
        """Return the targets (width, height, tastes, 2) on the way to one goal."""
        return np.stack([self._aim(taste, np.array(goal)) for taste in range(len(TASTES))], axis=2)

    def _aim(self, taste: int, goal: FloatArray) -> FloatArray:
        """Return (width, height, 2): from each grid point the farthest visible point on the route, or the goal."""
        from scipy.ndimage import distance_transform_edt
        from scipy.sparse.csgraph import dijkstra

        end = self._nearest_node(goal)
        cost, onwards = dijkstra(self._graphs[taste], indices=end, return_predecessors=True)
        onwards = np.where(onwards < 0, np.arange(len(onwards)), onwards)
        points = self.points.copy()
        points[end] = goal
        node = onwards.copy()
        aim = points[node]
        looking = np.flatnonzero(np.isfinite(cost))
        for hops in range(2, int(TASTES[taste][2] / self.pitch)):
            node[looking] = onwards[node[looking]]
            looking = looking[self._in_sight(self.points[looking], points[node[looking]], samples=2 * hops)]
            aim[looking] = points[node[looking]]
        # points in walls have the target of the nearest point outside
        unknown = ~np.isfinite(cost).reshape(self.nodes.shape)
        x, y = distance_transform_edt(unknown, return_distances=False, return_indices=True)
        aims: FloatArray = aim.reshape(*self.nodes.shape, 2)[x, y]
        return aims

    def _in_sight(self, start: FloatArray, end: FloatArray, samples: int) -> NDArray[np.bool_]:
        """Return (N,) whether the agent's box can move straight from start to end."""
        visible = np.ones(len(start), dtype=bool)
        for fraction in np.linspace(0, 1, samples + 1)[1:]:
            x, y = np.rint(start + fraction * (end - start)).astype(np.intp).T
            visible &= self.free[x, y]
        return visible


routes_for = cache_by_bytes(Routes.nbytes)(Routes)  # players on the same map share routes


def wrap(angle: Any, turn: float) -> Any:
    """Return the angle in [-turn / 2, turn / 2)."""
    return (angle + turn / 2) % turn - turn / 2
