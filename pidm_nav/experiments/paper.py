"""The paper's tables as data, in the order of its four tasks."""

from __future__ import annotations

from typing import NamedTuple

Row = tuple[float, ...]  # four room, zigzag, maze, multiroom, and their average if the paper has one
HUMAN, ASTAR = "human", "astar"


class PaperTable(NamedTuple):
    """Efficiency ratios of one side over another, as printed in the paper."""

    name: str  # in the paper
    ratios: dict[float, Row]  # level c -> eta(c) per task and on average


# (agent, demos_from) -> highest goal ratio
MAXIMUM: dict[tuple[str, str], Row] = {
    ("bc", HUMAN): (0.98, 0.97, 0.95, 0.99),
    ("pidm", HUMAN): (0.99, 0.98, 0.99, 0.98),
    ("pidm", ASTAR): (1.00, 0.99, 0.99, 1.00),
}

# ((agent, demos_from), (baseline, demos_from)) -> ratios of agent over baseline
TABLES: dict[tuple[tuple[str, str], tuple[str, str]], PaperTable] = {
    (("pidm", HUMAN), ("bc", HUMAN)): PaperTable(
        "Table 1",
        {0.80: (4.0, 2.0, 5.0, 2.0, 3.25), 0.90: (4.0, 2.0, 4.0, 4.0, 3.5), 0.95: (4.0, 1.33, 5.0, 2.0, 3.08)},
    ),
    (("pidm", HUMAN), ("retrieval-bc", HUMAN)): PaperTable(
        "Appendix E",
        {0.80: (2.0, 2.0, 5.0, 2.0, 2.75), 0.90: (4.0, 2.0, 4.0, 4.0, 3.5), 0.95: (2.0, 1.0, 3.0, 2.0, 2.0)},
    ),
    (("pidm", ASTAR), ("pidm", HUMAN)): PaperTable(
        "Appendix D",
        {0.80: (5.0, 5.0, 2.0, 5.0, 4.25), 0.90: (5.0, 10.0, 2.5, 5.0, 5.625), 0.95: (10.0, 15.0, 0.5, 20.0, 11.375)},
    ),
}

# kind of demonstrations -> task -> total steps, shortest, mean and longest of 50 demonstrations
DATASETS: dict[str, dict[str, tuple[int, int, float, int]]] = {
    HUMAN: {
        "four-room": (5821, 103, 116.42, 154),
        "zigzag": (4009, 66, 80.18, 106),
        "maze": (9785, 176, 195.70, 227),
        "multiroom": (12961, 241, 259.22, 314),
    },
    ASTAR: {
        "four-room": (6148, 115, 122.96, 131),
        "zigzag": (3820, 71, 76.4, 85),
        "maze": (9777, 186, 195.54, 207),
        "multiroom": (13146, 245, 262.92, 277),
    },
}
