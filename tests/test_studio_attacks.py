"""What people with bad intentions, odd files and full queues do to the studio."""

import json
import os
import re
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pidm_nav import DemoDataset, load_demos, save_demos
from pidm_nav.files import only_writer
from pidm_nav.packaged import packaged_folder
from pidm_nav.tasks import TASKS

pytest.importorskip("starlette", reason="the studio needs the extra `studio`")
from studio_server import MAZE, Server, hear, packaged, play, until, wait_for

from pidm_nav.studio import recordings
from pidm_nav.studio.folder import Folder, WorldRequest
from pidm_nav.studio.training import Trainings, TrainRequest

# ---- uploads and recordings


def test_an_upload_never_replaces_what_is_being_recorded(server: Server, folder: Path) -> None:
    with server.socket("/play", {"world": {"task": "zigzag"}, "file": "mine.npz"}) as line:
        hear(line)
        assert "being written" in server.refusal("/api/demos/mine.npz", packaged())[1]
        play(line, 6)
        until(line, lambda told: told["kept"] == 1)
        assert server.refusal("/api/demos/mine.npz", packaged())[0] == 400
        assert server.refusal("/api/demos/mine.npz", b"no demonstrations")[0] == 400
    assert len(load_demos(folder / "mine.npz")) == 1


def test_an_upload_that_is_refused_removes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording appears under the same name while the upload is being read."""
    path = tmp_path / "mine.npz"

    def appear(_: Any) -> DemoDataset:
        path.write_bytes(b"acknowledged")
        raise ValueError("no demonstrations")

    monkeypatch.setattr(recordings, "load_demos", appear)
    with pytest.raises(ValueError, match="no demonstrations"):
        recordings.upload(Folder(tmp_path.resolve()), "mine.npz", b"content")
    assert path.read_bytes() == b"acknowledged" and os.listdir(tmp_path) == ["mine.npz"]


def test_of_many_uploads_under_one_name_one_is_kept(server: Server, folder: Path) -> None:
    content = packaged()

    def upload(number: int) -> bool:
        try:
            server.ask("/api/demos/same.npz", content)
        except OSError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(upload, range(8))) == 1
    assert len(load_demos(folder / "same.npz")) == 50


def test_kept_is_said_when_it_is_on_disk(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with server.socket("/play", {"world": {"task": "zigzag"}, "file": "mine.npz"}) as line:
        hear(line)
        told = play(line, 6)
        while "kept" not in told["message"]:
            assert told["kept"] == 0 and "Saving" in told["message"]
            told = hear(line)
        server.process.kill()  # on receipt
    server.process.wait(timeout=30)
    assert len(load_demos(tmp_path / "mine.npz")) == told["kept"] == 1


# ---- paths


@pytest.mark.parametrize("task", ["../../../escaped/x", "/escaped", "..", "a/b"])
def test_the_task_that_a_file_names_becomes_no_path(tmp_path: Path, task: str) -> None:
    folder = Folder((tmp_path / "work").resolve())
    run = folder.new_run(task, "bc", 5)
    assert run.parent == folder.path / "runs" and run.is_dir()


EXTRAS = [{"agents": ["../../x"]}, {"task": "../../../escaped/x"}, {"agents": ["/x"]}, {"demos": "evil.npz"}]


@pytest.mark.parametrize("extra", EXTRAS)
def test_a_training_stays_in_its_folder(server: Server, folder: Path, tmp_path: Path, extra: Any) -> None:
    demos = load_demos("zigzag/astar")
    save_demos(DemoDataset("../../escaped-v0", tuple(demos[:1]), {}), folder / "evil.npz")
    before = sorted(folder.parent.rglob("*"))
    asked = {"agents": ["bc"], "demos": "maze/astar", "steps": 1, **extra}
    assert server.refusal("/api/trainings", asked)[0] == 400
    assert sorted(folder.parent.rglob("*")) == before
    assert server.ask("/api/overview")["version"]


@pytest.mark.parametrize("name", ["runs/..", "runs/../..", "", "/etc", "runs/.x", "runs/a/b", "other/a", "runs/link"])
def test_no_name_of_a_run_leads_out(tmp_path: Path, name: str) -> None:
    folder = Folder(tmp_path.resolve())
    (tmp_path / "precious").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "precious")
    (tmp_path / "runs" / "good").mkdir()
    for change in (
        lambda: folder.delete_run(name),
        lambda: folder.rename_run(name, "runs/new"),
        lambda: folder.rename_run("runs/good", name),
    ):
        with pytest.raises((ValueError, OSError)):
            change()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["good", "link", "precious", "runs"]


def test_deleting_a_run_spares_what_no_training_wrote(tmp_path: Path) -> None:
    folder = Folder(tmp_path.resolve())
    run = folder.new_run("maze", "bc", 1)
    for name in ("agent.json", "losses.jsonl", "thesis.tex"):
        (run / name).touch()
    with pytest.raises(OSError, match=r"thesis\.tex.*stays"):
        folder.delete_run("runs/maze-bc-1-1")
    assert [path.name for path in run.iterdir()] == ["thesis.tex"]


# ---- odd files in the folder


def test_a_run_that_another_process_trains_is_neither_deleted_nor_renamed(tmp_path: Path) -> None:
    from pidm_nav.agents.train import STATE_FILE

    folder = Folder(tmp_path.resolve())
    run, old_lock = folder.new_run("maze", "bc", 1), ".agent.json.lock"
    (run / old_lock).touch()  # of a process that was killed
    with only_writer(run / STATE_FILE, "train elsewhere"):
        before = sorted(os.listdir(run))
        with pytest.raises(BlockingIOError, match="another process: stop the training"):
            folder.delete_run("runs/maze-bc-1-1")
        with pytest.raises(BlockingIOError, match="another process: stop the training"):
            folder.rename_run("runs/maze-bc-1-1", "runs/mine")
        assert sorted(os.listdir(run)) == before
    folder.rename_run("runs/maze-bc-1-1", "runs/mine")
    assert os.listdir(tmp_path / "runs") == ["mine"]
    folder.delete_run("runs/mine")
    assert os.listdir(tmp_path / "runs") == []
    with pytest.raises(FileNotFoundError, match="there is no training run 'runs/mine': choose"):
        folder.delete_run("runs/mine")


def odd_files(folder: Path) -> None:
    (folder / "dangling.npz").symlink_to(folder / "nowhere")
    os.mkfifo(folder / "pipe.npz")
    (folder / "folder.npz").mkdir()
    (folder / "device.npz").symlink_to("/dev/zero")
    for name, target in (("zero", "/dev/zero"), ("gone", "/nowhere")):
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "agent.json").symlink_to(target)
    (folder / "runs" / "pipe").mkdir()
    os.mkfifo(folder / "runs" / "pipe" / "agent.json")
    (folder / "runs" / "large").mkdir()
    (folder / "runs" / "large" / "agent.json").write_bytes(b" " * 2_000_000)
    (folder / "runs" / "deep").mkdir()
    (folder / "runs" / "deep" / "agent.json").write_text("[" * 100_000)
    (folder / "runs" / "html").mkdir()
    html = '<meta http-equiv="refresh" content="0; url=http://evil.example">'
    (folder / "runs" / "html" / "agent.json").write_text(json.dumps({"agent": html, "task": "maze"}))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes on Windows")
def test_odd_files_are_skipped_and_told(tmp_path: Path) -> None:
    odd_files(tmp_path)
    folder = Folder(tmp_path.resolve())
    # some versions of Python do not list a link that leads nowhere
    skipped = {each["name"] for each in (*folder.recordings(), *folder.agents()) if each.get("error")}
    recordings = {"dangling.npz", "pipe.npz", "folder.npz", "device.npz"}
    assert skipped | {"runs/gone"} == recordings | {
        f"runs/{name}" for name in ("zero", "gone", "pipe", "large", "deep", "html")
    }
    assert all("error" not in each for each in folder.recordings() if each["name"] == "maze/astar")
    for name in sorted(skipped):
        with pytest.raises((ValueError, OSError)):
            folder.demos(name) if name.endswith(".npz") else folder.agent(name)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have only names in Unicode")
def test_names_that_are_no_text_are_listed_with_an_error(tmp_path: Path) -> None:
    work = tmp_path / os.fsdecode(b"work\xff")
    run = work / "runs" / os.fsdecode(b"a\xff")
    run.mkdir(parents=True)
    (run / "agent.json").write_bytes((packaged_folder() / "maze" / "bc" / "agent.json").read_bytes())
    (work / os.fsdecode(b"m\xff.npz")).write_bytes(packaged())
    (work / "good.npz").write_bytes(packaged())
    server = Server(work)
    overview = server.ask("/api/overview")
    server.close()
    told = {each["name"]: each.get("error") for each in overview["recordings"] + overview["agents"]}
    assert told["m\\udcff.npz"] == told["runs/a\\udcff"] == "its name is not plain text: rename it"
    assert overview["folder"] == "work\\udcff" and told["good.npz"] is None


# ---- limits


def test_what_cannot_be_trained_leaves_no_folder(server: Server, folder: Path) -> None:
    runs = folder / "runs"
    before = sorted(runs.glob("*"))
    asked = {"agents": ["bc"], "demos": "maze/astar", "steps": 1}
    for number in (-1, 0, 51, 10**9):
        said = server.refusal("/api/trainings", {**asked, "num_demos": number})[1]
        assert f"cannot sample {number} of 50 episodes: choose 1 to 50" in said
    assert "no agent is chosen: choose one or two" in server.refusal("/api/trainings", {**asked, "agents": []})[1]
    assert sorted(runs.glob("*")) == before
    (name,) = server.ask("/api/trainings", asked)["started"]
    assert name.startswith("runs/maze-bc-50-")
    wait_for(server, name)


def test_two_trainings_are_the_most_however_they_are_asked_for(tmp_path: Path) -> None:
    trainings = Trainings(Folder(tmp_path.resolve()))
    request = TrainRequest(("bc",), "maze/astar", steps=100_000)

    def start(_: int) -> bool:
        try:
            trainings.start(request)
        except ValueError:
            return False
        return True

    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    try:
        with ThreadPoolExecutor(12) as pool:
            assert sum(pool.map(start, range(12))) == 2
    finally:
        for run in trainings.runs:
            run.stop()
            run.process.wait()
    assert {run["status"] for run in trainings.report()} == {"stopped"}
    if before:
        assert len(os.listdir("/proc/self/fd")) <= before
    trainings.close()


@pytest.mark.parametrize("side", [4096, 2049, 0, -5])
def test_rooms_have_a_largest_size(side: int) -> None:
    map_text = "##########\n#........#\n#.A....1.#\n#........#\n##########"
    with pytest.raises(ValueError, match="side of a room"):
        WorldRequest("custom", map_text, (side, 800)).resolve()
    assert WorldRequest("custom", map_text, (2048, 800)).resolve()[0] is TASKS["custom"]


def test_silent_sockets_do_not_keep_others_from_watching(server: Server) -> None:
    silent = [server.socket("/watch", "", silent=True) for _ in range(17)]
    with server.socket("/watch", {"world": MAZE, "players": ["astar"]}) as line:
        assert hear(line)["titles"] == ["A*"]
    for line in silent:
        line.close()


def test_orders_that_wait_have_a_limit() -> None:
    from pidm_nav.studio.watch import MAX_ORDERS, Order, Watch, WatchRequest

    watched = Watch(WatchRequest(WorldRequest("maze"), ("astar",)), Folder(Path.cwd()))
    with pytest.raises(ValueError, match="too many requests"):
        for _ in range(MAX_ORDERS + 1):
            watched.receive(Order(do="step"))
    watched.close()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit of open files to lower")
@pytest.mark.thorough
def test_idle_connections_do_not_cost_a_recording(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    import resource

    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        server = Server(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    place = ("127.0.0.1", int(server.base.rpartition(":")[2]))
    with server.socket("/play", {"world": {"task": "zigzag"}, "file": "mine.npz"}) as line, ExitStack() as idle:
        hear(line)
        for _ in range(400):
            idle.enter_context(socket.create_connection(place))
        play(line, 6)
        until(line, lambda told: told["kept"] == 1)
    server.close()
    assert len(load_demos(tmp_path / "mine.npz")) == 1
    assert "Traceback" not in capfd.readouterr().err


def test_a_half_request_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    import uvicorn

    from pidm_nav.studio import access
    from pidm_nav.studio.server import make_app

    monkeypatch.setattr(access, "HEAD_SECONDS", 0.05)
    config = uvicorn.Config(make_app(tmp_path, "x" * 20), port=0, log_level="error", http=access.ImpatientProtocol)

    async def visit() -> list[bytes]:
        running = uvicorn.Server(config)
        task = asyncio.create_task(running.serve())
        while not running.started:
            await asyncio.sleep(0)
        port = running.servers[0].sockets[0].getsockname()[1]
        ends = []
        for text in (b"", b"GET / HTTP/1.1\r\nHost: x\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /half"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(text)
            ends.append(await asyncio.wait_for(reader.read(), 30))  # ends when the server closes it
            writer.close()
        running.should_exit = True
        await task
        return ends

    nothing, half, second = asyncio.run(visit())
    assert not nothing and not half and second.startswith(b"HTTP/1.1 403")


def test_a_half_body_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    from starlette.requests import Request

    from pidm_nav.studio import server as module

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()  # nothing more comes
        raise AssertionError

    monkeypatch.setattr(module, "BODY_SECONDS", 0.01)
    request = Request({"type": "http", "method": "POST", "headers": [], "path_params": {}}, receive)
    place = Folder(Path.cwd())
    answer = asyncio.run(module._answer(module.Studio(place, Trainings(place)), lambda *_: None, str)(request))
    assert answer.status_code == 400 and b"did not arrive" in answer.body


def test_a_canceled_step_is_waited_for() -> None:
    import asyncio

    from pidm_nav.studio import sockets

    steps: list[str] = []
    release = threading.Event()

    def step() -> None:
        release.wait(30)
        steps.append("stepped")

    async def scenario() -> None:
        task: asyncio.Task[None] = asyncio.create_task(sockets.in_thread(step))
        await asyncio.sleep(0)
        ending = asyncio.create_task(sockets.end(task))
        for _ in range(3):
            await asyncio.sleep(0)
            task.cancel()  # whoever else gives up on it
        assert not ending.done()
        release.set()
        await ending
        assert steps == ["stepped"]  # nothing goes on after `end`

    asyncio.run(scenario())


def test_requests_are_answered_beside_the_players_clock() -> None:
    """Losses, listings and files are read in threads, while the event loop steps the players."""
    import asyncio

    from starlette.requests import Request

    from pidm_nav.studio.server import _answer

    threads: list[threading.Thread] = []
    answer = _answer(None, lambda studio: threads.append(threading.current_thread()))  # type: ignore[arg-type]
    asyncio.run(answer(Request({"type": "http", "method": "GET", "headers": [], "path_params": {}})))  # type: ignore[arg-type]
    assert threads and threads[0] is not threading.main_thread()


# ---- who may use it


def raw(server: Server, *lines: str) -> str:
    """Send a request as it is, and return the first line of the answer."""
    host, port = server.base.removeprefix("http://").split(":")
    cookie = f"Cookie: pidm-nav-{port}={server.token}"
    with socket.create_connection((host, int(port)), timeout=30) as line:
        line.sendall("\r\n".join(["GET /api/overview HTTP/1.1", *lines, cookie, "Connection: close", "", ""]).encode())
        return line.makefile("rb").readline().decode().strip()


@pytest.mark.parametrize(
    "origin", ["http://[", "http://[::1", "null", "file://", "http://evil.example", "//", "http://"]
)
def test_a_strange_origin_is_refused(server: Server, origin: str) -> None:
    assert server.refusal("/api/overview", Origin=origin)[0] == 403


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("evil.example", 403),
        ("evil.example:{port}", 403),
        ("localhost.evil.example:{port}", 403),
        ("[", 403),
        ("127.0.0.1:x", 403),
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
    ],
)
def test_a_name_that_is_not_this_machines_is_refused(server: Server, host: str, status: int) -> None:
    port = server.base.rpartition(":")[2]
    assert raw(server, f"Host: {host.format(port=port)}").split()[1] == str(status)


def test_pages_have_a_strict_policy(server: Server) -> None:
    import urllib.request

    cookie = f"pidm-nav-{server.base.rpartition(':')[2]}={server.token}"
    for path in ("/", "/static/app.js"):
        with urllib.request.urlopen(urllib.request.Request(server.base + path, headers={"Cookie": cookie})) as answer:
            policy = answer.headers["content-security-policy"]
            assert "base-uri 'none'" in policy and "form-action 'self'" in policy and "unsafe-inline" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"


def test_scripts_build_no_html_from_text() -> None:
    from importlib.resources import files

    for script in (files("pidm_nav.studio") / "static").iterdir():
        if script.name.endswith(".js"):
            found = re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", script.read_text())
            assert not found, script.name
