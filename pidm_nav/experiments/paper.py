"""The paper's own numbers, to be shown beside ours: its tables as data, in the order of the paper's four tasks."""

from __future__ import annotations

from typing import NamedTuple

Row = tuple[float, float, float, float]  # four room, zigzag, maze, multiroom


class PaperTable(NamedTuple):
    """Efficiency ratios of one agent and kind of demonstrations over another's, as printed."""

    name: str  # where the paper prints it
    ratios: dict[float, Row]  # level c -> eta(c) per task
    average: dict[float, float]
    maximum: dict[tuple[str, str], Row]  # (agent, demos_from) -> highest goal ratio per task


HUMAN, ASTAR = "human", "astar"

MAXIMUM: dict[tuple[str, str], Row] = {
    ("bc", HUMAN): (0.98, 0.97, 0.95, 0.99),
    ("pidm", HUMAN): (0.99, 0.98, 0.99, 0.98),
    ("pidm", ASTAR): (1.00, 0.99, 0.99, 1.00),
}

# ((agent, demos_from), (baseline, demos_from)) -> what the paper prints for agent over baseline
TABLES: dict[tuple[tuple[str, str], tuple[str, str]], PaperTable] = {
    (("pidm", HUMAN), ("bc", HUMAN)): PaperTable(
        "Table 1",
        {0.80: (4.0, 2.0, 5.0, 2.0), 0.90: (4.0, 2.0, 4.0, 4.0), 0.95: (4.0, 1.33, 5.0, 2.0)},
        {0.80: 3.25, 0.90: 3.5, 0.95: 3.08},
        {key: MAXIMUM[key] for key in (("bc", HUMAN), ("pidm", HUMAN))},
    ),
    (("pidm", HUMAN), ("retrieval-bc", HUMAN)): PaperTable(
        "Appendix E",
        {0.80: (2.0, 2.0, 5.0, 2.0), 0.90: (4.0, 2.0, 4.0, 4.0), 0.95: (2.0, 1.0, 3.0, 2.0)},
        {0.80: 2.75, 0.90: 3.5, 0.95: 2.0},
        {("pidm", HUMAN): MAXIMUM["pidm", HUMAN]},
    ),
    (("pidm", ASTAR), ("pidm", HUMAN)): PaperTable(
        "Appendix D",
        {0.80: (5.0, 5.0, 2.0, 5.0), 0.90: (5.0, 10.0, 2.5, 5.0), 0.95: (10.0, 15.0, 0.5, 20.0)},
        {0.80: 4.25, 0.90: 5.625, 0.95: 11.375},
        {key: MAXIMUM[key] for key in (("pidm", ASTAR), ("pidm", HUMAN))},
    ),
}


class DatasetStatistics(NamedTuple):
    """A row of the paper's dataset tables, over 50 demonstrations."""

    total_steps: int
    min_length: int
    mean_length: float
    max_length: int


DATASETS: dict[str, dict[str, DatasetStatistics]] = {
    HUMAN: {
        "four-room": DatasetStatistics(5821, 103, 116.42, 154),
        "zigzag": DatasetStatistics(4009, 66, 80.18, 106),
        "maze": DatasetStatistics(9785, 176, 195.70, 227),
        "multiroom": DatasetStatistics(12961, 241, 259.22, 314),
    },
    ASTAR: {
        "four-room": DatasetStatistics(6148, 115, 122.96, 131),
        "zigzag": DatasetStatistics(3820, 71, 76.4, 85),
        "maze": DatasetStatistics(9777, 186, 195.54, 207),
        "multiroom": DatasetStatistics(13146, 245, 262.92, 277),
    },
}
