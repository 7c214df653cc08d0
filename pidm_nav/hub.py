"""Agents and demonstrations on the Hugging Face Hub: `hf://OWNER/NAME[/FOLDER][@REVISION]`, with its own client.

Only files that this package writes are asked for, their sizes are checked before they are downloaded, and they are read
like local ones, without pickle.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

PREFIX = "hf://"
MAX_BYTES = 2**31  # of all files that are downloaded for one name
NAME = r"[A-Za-z0-9][\w.-]*"
Kind = Literal["model", "dataset"]


class HubName(NamedTuple):
    """What a name on the hub consists of."""

    repo: str
    inside: str = ""
    revision: str | None = None

    @staticmethod
    def parse(name: str) -> HubName:
        """Read a name, whose prefix may be missing."""
        found = re.fullmatch(rf"(?:{PREFIX})?({NAME}/{NAME})((?:/{NAME})*)(?:@([\w./-]+))?", name, re.ASCII)
        if found is None or ".." in name:
            raise ValueError(
                f"'{name}' is no name on the Hugging Face Hub: write {PREFIX}OWNER/NAME[/FOLDER][@REVISION]"
            )
        return HubName(found[1], found[2].strip("/"), found[3])


def on_hub(name: object) -> bool:
    """Return whether a name is one on the hub."""
    return str(name).startswith(PREFIX)


def client() -> Any:
    """Return the hub's client."""
    try:
        import huggingface_hub
        import huggingface_hub.constants
        import huggingface_hub.errors
    except ImportError:
        raise ModuleNotFoundError("the Hugging Face Hub needs its client: pip install 'pidm-nav[hub]'") from None
    return huggingface_hub


def download(name: str, kind: Kind, patterns: Sequence[str]) -> Path:
    """Download the files that match the patterns, and return their folder; the first pattern must be there."""
    hub, (repo, inside, revision) = client(), HubName.parse(name)
    inside = str(Path(inside).parent).strip(".") if inside.endswith(".npz") else inside
    wanted: dict[str, Any] = {"repo_type": kind, "revision": revision}
    wanted["allow_patterns"] = [f"{inside}/{each}" if inside else each for each in patterns]
    with one_sentence(name):
        files = _sizes(hub, repo, kind, revision)
        size = sum(files[each] for pattern in wanted["allow_patterns"] for each in fnmatch.filter(files, pattern))
        if size > MAX_BYTES:
            raise ValueError(f"it has {size:,} bytes, and at most {MAX_BYTES:,} are downloaded")
        snapshot = Path(hub.snapshot_download(repo, local_files_only=not files, **wanted))
    folder = snapshot / inside
    own = snapshot.parent.parent.resolve()  # snapshots hold links to the files beside them
    for path in folder.rglob("*"):
        if not path.resolve().is_relative_to(own):
            raise ValueError(f"'{path}' leads out of the hub's cache: delete {own} and load '{name}' again")
    if not (folder / patterns[0]).is_file():
        raise FileNotFoundError(f"'{name}' is not one that this package wrote: there is no {patterns[0]} in it")
    return folder


def _sizes(hub: Any, repo: str, kind: Kind, revision: str | None) -> dict[str, int]:
    """Return the files of a repository with their sizes; none where the hub is not reached."""
    try:
        info = hub.HfApi().repo_info(repo, repo_type=kind, revision=revision, files_metadata=True)
    except (hub.errors.RepositoryNotFoundError, hub.errors.RevisionNotFoundError):
        raise
    except Exception:  # any fault of a connection: what is in the cache may do
        return {}
    return {each.rfilename: each.size or 0 for each in info.siblings}


def upload(folder: Path, name: str, kind: Kind, private: bool) -> str:
    """Upload the files of a folder, in one commit, and return the page's address."""
    hub, (repo, inside, revision) = client(), HubName.parse(name)
    with one_sentence(name):
        api = hub.HfApi()
        page = api.create_repo(repo, repo_type=kind, private=private, exist_ok=True)
        place = {"path_in_repo": inside or None, "repo_type": kind, "revision": revision}
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Upload with pidm-nav", **place)
    return str(page)


@contextmanager
def one_sentence(name: str) -> Iterator[None]:
    """Say in a sentence what the client raises."""
    errors = client().errors
    try:
        yield
    except errors.RepositoryNotFoundError:
        missing = f"there is no '{name}' on the Hugging Face Hub that you may use"
        raise FileNotFoundError(f"{missing}: check the name, or log in with hf auth login") from None
    except errors.RevisionNotFoundError:
        raise FileNotFoundError(f"'{name}' has no such revision on the Hugging Face Hub: leave out @REVISION") from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, errors.CachedRepoTreeNotFoundError):
        raise FileNotFoundError(f"'{name}' is not in the hub's cache, and the hub is not reached: go online") from None
    except ValueError as error:
        raise ValueError(f"'{name}' cannot be used: {error}") from None
    except Exception as error:  # the client's and those of the libraries that it stands on
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise OSError(f"the Hugging Face Hub does not give or take '{name}' ({reason}): try again") from error
