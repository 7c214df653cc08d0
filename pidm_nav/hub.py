"""Downloads from and uploads to the Hugging Face Hub: `hf://OWNER/NAME[/FOLDER][@REVISION]`.

Only files of this package's formats are downloaded, after a check of their sizes. They are read like local files,
without pickle.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

PREFIX = "hf://"
MAX_BYTES = 2**31  # of all files of one name
NAME = r"[A-Za-z0-9][\w.-]*"
Kind = Literal["model", "dataset"]


class HubName(NamedTuple):
    """Parts of a name on the hub."""

    repo: str
    inside: str = ""
    revision: str | None = None

    @staticmethod
    def parse(name: str) -> HubName:
        """Parse a name with or without the prefix hf://."""
        found = re.fullmatch(rf"(?:{PREFIX})?({NAME}/{NAME})((?:/{NAME})*)(?:@([\w./-]+))?", name, re.ASCII)
        if found is None or ".." in name:
            raise ValueError(
                f"'{name}' is not a name on the Hugging Face Hub: give {PREFIX}OWNER/NAME[/FOLDER][@REVISION]"
            )
        return HubName(found[1], found[2].strip("/"), found[3])


def on_hub(name: object) -> bool:
    """Return whether a name is on the hub."""
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
    """Download the files that match the patterns, of which the first is required, and return their folder."""
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
            raise ValueError(f"'{path}' is a link out of the hub's cache: delete {own} and load '{name}' again")
    if not (folder / patterns[0]).is_file():
        raise FileNotFoundError(f"'{name}' holds no {patterns[0]}: give a name that pidm-nav pushed")
    return folder


def _sizes(hub: Any, repo: str, kind: Kind, revision: str | None) -> dict[str, int]:
    """Return the files of a repository with their sizes; nothing if the hub is unreachable."""
    try:
        info = hub.HfApi().repo_info(repo, repo_type=kind, revision=revision, files_metadata=True)
    except (hub.errors.RepositoryNotFoundError, hub.errors.RevisionNotFoundError):
        raise
    except Exception:  # without a connection, the cache may suffice
        return {}
    return {each.rfilename: each.size or 0 for each in info.siblings}


def upload(folder: Path, name: str, kind: Kind, private: bool) -> str:
    """Upload the files of a folder in one commit, and return the page's address."""
    hub, (repo, inside, revision) = client(), HubName.parse(name)
    with one_sentence(name):
        api = hub.HfApi()
        page = api.create_repo(repo, repo_type=kind, private=private, exist_ok=True)
        place = {"path_in_repo": inside or None, "repo_type": kind, "revision": revision}
        api.upload_folder(repo_id=repo, folder_path=folder, commit_message="Upload with pidm-nav", **place)
    return str(page)


@contextmanager
def one_sentence(name: str) -> Iterator[None]:
    """Convert errors of the hub's client to one sentence."""
    errors = client().errors
    try:
        yield
    except errors.RepositoryNotFoundError:
        missing = f"there is no '{name}' on the Hugging Face Hub with your access"
        raise FileNotFoundError(f"{missing}: check the name, or log in with hf auth login") from None
    except errors.RevisionNotFoundError:
        raise FileNotFoundError(f"'{name}' has no such revision on the Hugging Face Hub: leave out @REVISION") from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, errors.CachedRepoTreeNotFoundError):
        raise FileNotFoundError(f"'{name}' is not cached, and the hub is unreachable: go online") from None
    except ValueError as error:
        raise ValueError(f"'{name}' cannot be used: {error}") from None
    except Exception as error:  # of the client or its libraries
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise OSError(f"the transfer of '{name}' failed ({reason}): try again") from error
