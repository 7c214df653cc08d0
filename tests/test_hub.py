"""The Hugging Face Hub's own client, against a server on this machine that answers like the hub."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pytest

from pidm_nav import load_agent, load_demos
from pidm_nav.agents import push_to_hub
from pidm_nav.cli import main

pytest.importorskip("huggingface_hub.constants", reason="the extra hub is not installed")
huggingface_hub = pytest.importorskip("huggingface_hub", reason="the extra hub is not installed")
COMMIT = "1" * 40
REPOS: dict[str, dict[str, bytes]] = {}  # by kind, owner and name, such as models/me/x: the files
ASKED: list[str] = []


class FakeHub(BaseHTTPRequestHandler):
    """The few routes that loading and pushing use."""

    def log_message(self, *_: Any) -> None: ...

    def answer(self, code: int, content: Any = b"", **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(body)), "X-Repo-Commit": COMMIT, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/api/(models|datasets)/([\w.-]+/[\w.-]+)(/.*)?", path):
            kind, name, rest = found.groups()
            files = REPOS.get(f"{kind}/{name}")
            if files is None:
                return self.answer(404, {}, X_Error_Code="RepoNotFound")
            revision = (rest or "/revision/main").split("/")[2]
            if revision not in ("main", COMMIT):
                return self.answer(404, {}, X_Error_Code="RevisionNotFound")
            tree = [
                {"type": "file", "path": each, "size": self.size(each, content), "oid": self.etag(content)}
                for each, content in files.items()
            ]
            if (rest or "").startswith("/tree"):
                return self.answer(200, tree)
            siblings = [{"rfilename": each["path"], "size": each["size"]} for each in tree]
            return self.answer(200, {"id": name, "sha": COMMIT, "siblings": siblings, "private": False, "tags": []})
        found = re.fullmatch(r"/(datasets/)?([\w.-]+/[\w.-]+)/resolve/[^/]+/(.+)", path)
        if found is None:
            return self.answer(404, {})
        ASKED.append(found[3])
        content = REPOS[f"{'datasets' if found[1] else 'models'}/{found[2]}"].get(found[3])
        if content is None:
            return self.answer(404, {}, X_Error_Code="EntryNotFound")
        headers = {"ETag": f'"{self.etag(content)}"', "X_Linked_Size": str(self.size(found[3], content))}
        return self.answer(200, content, **headers)

    do_HEAD = do_GET

    @staticmethod
    def etag(content: bytes) -> str:
        return hashlib.sha1(content).hexdigest()

    @staticmethod
    def size(name: str, content: bytes) -> int:
        return 10**10 if name.startswith("large/") else len(content)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = unquote(urlsplit(self.path).path)
        host = f"http://127.0.0.1:{self.server.server_port}"  # type: ignore[attr-defined]
        if path == "/api/validate-yaml":
            return self.answer(200, {"errors": [], "warnings": []})
        if path == "/api/repos/create":
            asked = json.loads(body)
            repo = f"{asked['organization']}/{asked['name']}"
            REPOS.setdefault(f"{asked.get('type') or 'model'}s/{repo}", {})
            folder = "datasets/" if asked.get("type") == "dataset" else ""
            return self.answer(200, {"url": f"{host}/{folder}{repo}", "name": repo})
        found = re.fullmatch(r"/api/((?:models|datasets)/[\w.-]+/[\w.-]+)/(preupload|commit)/main", path)
        assert found is not None, path
        if found[2] == "preupload":
            modes = [
                {"path": each["path"], "uploadMode": "regular", "shouldIgnore": False}
                for each in json.loads(body)["files"]
            ]
            return self.answer(200, {"files": modes})
        for line in map(json.loads, body.splitlines()):
            if line["key"] == "file":
                REPOS[found[1]][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
        return self.answer(
            200, {"commitUrl": f"{host}/{found[1].removeprefix('models/')}/commit/{COMMIT}", "commitOid": COMMIT}
        )


@pytest.fixture(scope="module", autouse=True)
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), FakeHub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture(autouse=True)
def hub(server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Use the server, a cache of the test's own, and nobody's login."""
    constants, cache = huggingface_hub.constants, tmp_path / "cache"
    template = server + "/{repo_id}/resolve/{revision}/{filename}"
    for name, value in {
        "ENDPOINT": server,
        "HUGGINGFACE_CO_URL_TEMPLATE": template,
        "HF_HUB_CACHE": str(cache),
    }.items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("HF_TOKEN", "hf_nobody")
    REPOS.clear()
    ASKED.clear()
    yield cache


def refusal(arguments: list[str], capsys: Any) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    told: str = capsys.readouterr().err.splitlines()[-1]  # after the client's progress bars
    assert ended.value.code == 2 and told.startswith("error: ")
    return told


@pytest.mark.parametrize("name", ["me/maze", "me/zoo/maze/bc"])
def test_an_agent_comes_back_as_it_was_pushed(name: str, hub: Path) -> None:
    push_to_hub("maze/bc", name, episodes=3)
    files = REPOS["models/" + "/".join(name.split("/")[:2])]
    inside = "/".join(name.split("/")[2:])
    prefix = f"{inside}/" if inside else ""
    assert {re.sub("weights-.*", "weights", each) for each in files} == {
        f"{prefix}{each}" for each in ("agent.json", "weights", "README.md")
    }
    card = files[f"{prefix}README.md"].decode()
    for expected in ("library_name: pidm-nav", "`bc`", "task `maze`", "50 episodes", "goal ratio", "95%"):
        assert expected in card, card
    assert f'load_agent("hf://{name}")' in card
    files |= {f"{prefix}evil.pkl": b"x", f"{prefix}code.py": b"raise"}
    loaded, own = load_agent(f"hf://{name}"), load_agent("maze/bc")
    observation = np.random.default_rng(0).uniform(0, 100, (5, *own.observation_space.shape)).astype(np.float32)
    np.testing.assert_array_equal(loaded.predict(observation)[0], own.predict(observation)[0])
    assert loaded.description == own.description
    assert not [each for each in ASKED if each.endswith((".pkl", ".py", ".md"))]
    assert {each.parent.name for each in hub.iterdir()} == {"cache"}


def test_demonstrations_come_back_and_commands_take_both(tmp_path: Path, capsys: Any) -> None:
    main(["hub", "push", "maze/astar", "me/mazes"])
    assert "me/mazes" in capsys.readouterr().out
    assert set(REPOS["datasets/me/mazes"]) == {"demos.npz", "README.md"}
    assert load_demos("hf://me/mazes").sha256 == load_demos("maze/astar").sha256
    assert load_demos(f"hf://me/mazes/demos.npz@{COMMIT}").sha256 == load_demos("maze/astar").sha256
    run = str(tmp_path / "run")
    main(["train", "--agent", "bc", "--demos", "hf://me/mazes", "--num-demos", "1", "--steps", "2", "--out", run])
    main(["hub", "push", run, "me/bc", "--episodes", "0"])
    main(["evaluate", "hf://me/bc", "--episodes", "1"])
    assert "bc on maze" in capsys.readouterr().out


def test_what_was_loaded_once_loads_without_network(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    push_to_hub("maze/bc", "me/bc", episodes=0)
    load_agent("hf://me/bc")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    huggingface_hub.close_session()
    assert load_agent("hf://me/bc").name == "bc"
    assert "is not cached" in refusal(["evaluate", "hf://me/other"], capsys)
    monkeypatch.undo()
    huggingface_hub.close_session()


def test_without_network_a_sentence_says_so(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    assert "hub" in refusal(["evaluate", "hf://me/bc"], capsys).lower()


def test_what_is_not_there_or_not_ours_is_told(capsys: Any) -> None:
    REPOS["models/me/other"] = {"model.bin": b"x"}
    REPOS["datasets/me/other"] = {"data.csv": b"x"}
    REPOS["models/me/huge"] = {"large/agent.json": b"{}"}
    REPOS["models/me/bad"] = {"agent.json": b"{}"}
    for name, reason in {
        "hf://me/nothing": "there is no 'hf://me/nothing' on the Hugging Face Hub",
        "hf://me/other": "holds no agent.json",
        "hf://me/other@gone": "no such revision",
        "hf://me/huge/large": "10,000,000,000 bytes",
        "hf://me/bad": "damaged",
        "hf://me": "give hf://OWNER/NAME",
        "hf://me/../../etc": "give hf://OWNER/NAME",
    }.items():
        assert reason in refusal(["evaluate", name], capsys), name
    assert "no demos.npz" in refusal(["demos", "info", "hf://me/other"], capsys)
    assert ASKED.count("large/agent.json") <= 1  # its size was asked for


def test_a_link_out_of_the_cache_is_not_followed(hub: Path, tmp_path: Path, capsys: Any) -> None:
    push_to_hub("maze/bc", "me/bc", episodes=0)
    load_agent("hf://me/bc")
    (own,) = hub.glob("models--me--bc/snapshots/*/agent.json")
    outside = tmp_path / "agent.json"
    outside.write_bytes(own.read_bytes())
    own.unlink()
    own.symlink_to(outside)
    assert "a link out of the hub's cache" in refusal(["evaluate", "hf://me/bc"], capsys)
