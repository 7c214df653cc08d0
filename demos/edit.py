"""edit_demos(): select, trim and merge demonstrations, with a history in their source."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from pidm_nav.demos.dataset import DemoDataset, check_environment
from pidm_nav.demos.formats import load_demos
from pidm_nav.demos.replay import demo_episode
from pidm_nav.rollouts.episode import Episode
from pidm_nav.version import __version__


class EditedFile(msgspec.Struct):
    """A source file of an edit."""

    name: str
    sha256: str  # of the file; of observations and actions if demonstrations are not one file


class Edit(msgspec.Struct):
    """Entry of the `history` in a dataset's source."""

    done: str  # in the notation of the command line
    version: str
    files: list[EditedFile]


def edit_demos(
    source: str | Path,
    *,
    keep: str | None = None,
    drop: str | None = None,
    trim: str | None = None,
    merge: Sequence[str | Path] = (),
) -> DemoDataset:
    """Load demonstrations, edit them in the order of the arguments, and add an entry to their history.

    Args:
        source: an argument of `load_demos`.
        keep: episodes to keep: "successes", or indices from 0, such as "0,4,10:20" (10 to 19).
        drop: indices of episodes to drop, as in the source.
        trim: steps to keep of each remaining episode, as a Python slice such as "0:120", "10:" or ":-5"; or of one
            episode, as in "3=0:120". An episode without its end is truncated; one without its beginning has no seed.
        merge: demonstrations of the same task and environment, appended unchanged.
    """
    if not (keep or drop or trim or merge):
        raise ValueError("nothing to do: give keep, drop, trim or merge")
    dataset, *others = (load_demos(each) for each in (source, *merge))
    kept = list(range(len(dataset)))
    if keep:
        if keep == "successes" and dataset.summary().success is None:
            raise ValueError(f"episodes of {dataset.task} do not report success: keep indices such as 0,4")
        kept = [i for i in kept if dataset[i].success] if keep == "successes" else _numbers(dataset, keep)
    chosen = sorted(set(kept) - set(_numbers(dataset, drop) if drop else ()))
    if not chosen:
        raise ValueError(f"no episode is left of '{source}', which has 0 to {len(dataset) - 1}: keep at least one")
    known = [part.get("env_kwargs", {}) for part in dataset.parts]
    for name, other in zip(merge, others, strict=True):
        check_environment(other, str(name), dataset.task, known, "merge demonstrations of one task and environment")
    edited = dataset[chosen]
    if trim:
        pairs = zip(chosen, edited, strict=True)
        edited = replace(edited, episodes=tuple(_trimmed(index, episode, trim) for index, episode in pairs))
    files = [_edited_file(name, each) for name, each in zip((source, *merge), (dataset, *others), strict=True)]
    given = {"keep": keep, "drop": drop, "trim": trim, "merge": " ".join(file.name for file in files[1:])}
    entry = Edit(" ".join(f"--{name} {value}" for name, value in given.items() if value), __version__, files)
    return DemoDataset.concatenate([_with_entry(each, entry) for each in (edited, *others)])


def edits(dataset: DemoDataset) -> list[Edit]:
    """Return the history of the demonstrations, the oldest edit first."""
    found = [edit for part in dataset.parts for edit in _history(part)]
    return [edit for index, edit in enumerate(found) if edit not in found[:index]]


def _numbers(dataset: DemoDataset, text: str) -> list[int]:
    """Return the episodes in a text such as 3,7,10:20, all of which must exist."""
    numbers = []
    for word in text.split(","):
        found = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", word.strip())
        if not found:
            raise ValueError(f"'{word}' is not an episode: give indices such as 3,7 or 10:20")
        for number in range(int(found[1]), int(found[2] or int(found[1]) + 1)):
            demo_episode(dataset, number)  # raises ValueError if there is none
            numbers.append(number)
    return numbers


def _trimmed(index: int, episode: Episode, trim: str) -> Episode:
    found = re.fullmatch(r"(?:(\d{1,9})=)?(-?\d{1,9})?:(-?\d{1,9})?", trim.strip())
    if not found:
        raise ValueError(f"trim '{trim}' is not a range of steps: give two numbers such as 0:120, or one, as in 10:")
    only, *ends = (int(number) if number else None for number in found.groups())
    if only not in (None, index):
        return episode
    steps = len(episode)
    first, end, _ = slice(*ends).indices(steps)
    if first >= end:
        raise ValueError(f"trim '{trim}' leaves no step of episode {index}, which has {steps}: drop it, or keep more")
    return episode.cut(first, end)


def _history(part: dict[str, Any]) -> list[Edit]:
    try:
        return msgspec.convert(part.get("history", []), list[Edit])
    except ValueError as error:
        raise ValueError(f"the history of these demonstrations is invalid: {error}") from None


def _with_entry(dataset: DemoDataset, entry: Edit) -> DemoDataset:
    """Add an entry to the history of every part of the source."""
    parts = [{**part, "history": msgspec.to_builtins([*_history(part), entry])} for part in dataset.parts]
    return replace(dataset, source={**dataset.source, "parts": parts} if "parts" in dataset.source else parts[0])


def _edited_file(source: str | Path, dataset: DemoDataset) -> EditedFile:
    path = Path(source)
    if not path.is_file():
        return EditedFile(path.name if path.is_dir() else str(source), dataset.sha256)
    return EditedFile(path.name, hashlib.sha256(path.read_bytes()).hexdigest())
