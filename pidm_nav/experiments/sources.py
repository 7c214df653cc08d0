"""Demonstrations of a sweep, by name, file or folder."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from pidm_nav.demos.dataset import DemoDataset
from pidm_nav.demos.formats.npz import BUNDLED, load_demos
from pidm_nav.plots import DEMONSTRATOR_TITLES, demonstrator
from pidm_nav.tasks import PAPER_TASKS, find_task


def find_demos(
    tasks: Sequence[str] = (), files: Sequence[str] = (), demos_from: str | None = None
) -> tuple[dict[str, DemoDataset], str]:
    """Load the demonstrations of each task, and return them with a label of their source.

    Args:
        tasks: names of tasks, or "all" for the paper's four. Default: those of the files, or the paper's four.
        files: arguments of `load_demos`, one per task in any order.
        demos_from: `astar` or `human-like` of the package, or a folder with one file, or one folder of the paper's
            release, per task.
    """
    if files and demos_from is not None:
        raise ValueError("files and demos_from are both given: choose one")
    tasks = tuple(PAPER_TASKS) if tuple(tasks) == ("all",) else tasks
    names = list(dict.fromkeys(find_task(task).name for task in tasks))
    if not files and (demos_from is None or demos_from in BUNDLED):
        kind = demos_from or "human-like"
        return {task: load_demos(f"{task}/{kind}") for task in names or PAPER_TASKS}, kind
    found: dict[str, tuple[str, DemoDataset]] = {}
    for source in files or _inside(Path(str(demos_from))):
        dataset = load_demos(source)
        if dataset.task in found and (not names or dataset.task in names):
            raise ValueError(
                f"'{found[dataset.task][0]}' and '{source}' are both of {dataset.task}: give one file per task"
            )
        found[dataset.task] = (source, dataset)
    for task in names:
        if task not in found:
            raise ValueError(f"there are no demonstrations of {task}: give a file, or leave the task out")
    chosen = {task: found[task] for task in names or found}
    return {task: dataset for task, (_, dataset) in chosen.items()}, _label(chosen.values())


def _inside(folder: Path) -> list[str]:
    """Return the datasets in a folder; a folder of the paper's release is one dataset."""
    if not folder.is_dir():
        known = " or ".join(BUNDLED)
        raise FileNotFoundError(f"there is no folder '{folder}': give demos_from {known} or a folder")
    if any(folder.glob("*_trajectory_data.npz")):
        return [str(folder)]
    paths = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    inside = [path for path in paths if path.suffix == ".npz" or path.is_dir()]
    if not inside:
        raise FileNotFoundError(f"the folder '{folder}' holds no demonstrations: give one with a .npz file per task")
    return [str(path) for path in inside]


def _label(sources: Iterable[tuple[str, DemoDataset]]) -> str:
    """Return human, human-like or astar if all files have that demonstrator, else `custom`."""
    texts = (f"{Path(source).name} {dataset.source.get('made_by', '')}" for source, dataset in sources)
    labels = {name if name in DEMONSTRATOR_TITLES else "custom" for name in map(demonstrator, texts)}
    return labels.pop() if len(labels) == 1 else "custom"
