"""What a sweep learns from: demonstrations for each task, found by name, file or folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats.npz import load_demos
from pidm_nav.tasks import TASKS, get_task

BUNDLED = ("astar", "human-like")


def parse_tasks(text: str) -> tuple[str, ...]:
    """Task names of a comma-separated list, or `all`."""
    if text == "all":
        return tuple(TASKS)
    return tuple(dict.fromkeys(get_task(name.strip()).name for name in text.split(",")))


def parse_fractions(text: str, option: str) -> tuple[float, ...]:
    """Numbers of a comma-separated list, which may be empty."""
    try:
        return tuple(sorted({float(part) for part in text.split(",") if part.strip()}))
    except ValueError:
        raise ValueError(f"{option} is '{text}': give fractions such as 0.1,0.5") from None


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """Whole numbers of a comma-separated list, increasing."""
    try:
        return tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        raise ValueError(f"{option} is '{text}': give whole numbers such as 1,2,5,10") from None


def find_demos(
    tasks: Sequence[str], files: Sequence[str] = (), demos_from: str | None = None
) -> tuple[dict[str, DemoDataset], str]:
    """Each task's demonstrations, and one word for where they come from.

    Args:
        tasks: their names.
        files: files, folders or ids that `load_demos` knows, one a task in any order.
        demos_from: `astar` or `human-like`, which come with the package, or a folder with one file or one
            folder of the paper's release for each task.
    """
    if files and demos_from is not None:
        raise ValueError("--demos and --demos-from were both given: choose one")
    if not files and (demos_from is None or demos_from in BUNDLED):
        kind = demos_from or "human-like"
        return {task: load_demos(f"{task}/{kind}") for task in tasks}, kind
    found: dict[str, tuple[str, DemoDataset]] = {}
    for source in files or _inside(Path(str(demos_from))):
        dataset = load_demos(source)
        if dataset.task in found and dataset.task in tasks:
            raise ValueError(
                f"'{found[dataset.task][0]}' and '{source}' are both of {dataset.task}: name one a task with --demos"
            )
        found[dataset.task] = (source, dataset)
    for task in tasks:
        if task not in found:
            raise ValueError(f"there are no demonstrations of {task}: give a file of it or leave the task out")
    chosen = {task: found[task] for task in tasks}
    return {task: dataset for task, (_, dataset) in chosen.items()}, _label(chosen.values())


def _inside(folder: Path) -> list[str]:
    """The datasets in a folder, or the folder itself if it is one of the paper's release."""
    if not folder.is_dir():
        known = " or ".join(BUNDLED)
        raise FileNotFoundError(f"there is no folder '{folder}': --demos-from takes {known} or a folder")
    if any(folder.glob("*_trajectory_data.npz")):
        return [str(folder)]
    inside = [path for path in sorted(folder.iterdir()) if path.suffix == ".npz" or path.is_dir()]
    if not inside:
        raise FileNotFoundError(f"folder '{folder}' holds no demonstrations: it needs a .npz file for each task")
    return [str(path) for path in inside]


def _label(sources: Iterable[tuple[str, DemoDataset]]) -> str:
    """human, human-like or astar where the names agree on it, else `custom`."""
    labels = set()
    for source, dataset in sources:
        name = f"{Path(source).name} {dataset.source.get('made_by', '')}".lower().replace("_", "-")
        kinds = ("human-like", "humanlike", "human", "astar")
        labels.add(next((kind.replace("nl", "n-l") for kind in kinds if kind in name), "custom"))
    return labels.pop() if len(labels) == 1 else "custom"
