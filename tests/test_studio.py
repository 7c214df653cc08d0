"""The studio as its users meet it: a real server, real sockets and a real browser."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from pidm_nav import AStarExpert, load_demos
from pidm_nav.demos.replay import check_demos
from pidm_nav.policies import packaged_agents

pytest.importorskip("starlette", reason="the studio needs the extra `studio`")
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
MAZE = {"task": "maze"}
PAUSE = threading.Event()


class Server:
    """The command `studio` in a process of its own."""

    def __init__(self, folder: Path, port: str = "0", token: str = "") -> None:
        command = [sys.executable, "-m", "pidm_nav.cli", "studio", "--no-browser", "--port", port]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PIDM_NAV_TOKEN": token}
        self.process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        told = next(line for line in self.process.stdout if "http" in line)
        self.link = re.search(r"http\S+", told)[0]
        self.base, self.token = self.link.split("/?token=")

    def ask(self, path: str, content: Any = None, **headers: str) -> Any:
        """Return the answer to a request; content is sent as JSON, bytes as they are."""
        body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
        headers = {"Cookie": f"pidm-nav-{self.base.rpartition(':')[2]}={self.token}", **headers}
        with urllib.request.urlopen(urllib.request.Request(self.base + path, body, headers), timeout=60) as answer:
            return json.loads(answer.read())

    def refusal(self, path: str, content: Any = None, **headers: str) -> tuple[int, str]:
        with pytest.raises(urllib.error.HTTPError) as caught:
            self.ask(path, content, **headers)
        return caught.value.code, caught.value.read().decode()

    def socket(self, path: str, first: Any, **settings: Any) -> ClientConnection:
        line = connect(f"{self.base.replace('http', 'ws')}{path}?token={self.token}", legacy=True, **settings)
        line.send(first if isinstance(first, str | bytes) else json.dumps(first))
        return line

    def close(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=30)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("studio")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    made = Server(folder)
    yield made
    made.close()


def hear(line: ClientConnection) -> dict[str, Any]:
    told = json.loads(line.recv(timeout=30))
    assert "error" not in told, told
    return told


def complaint(line: ClientConnection) -> str:
    """Return what the studio says before it closes the socket."""
    while True:
        told = json.loads(line.recv(timeout=30))
        if "error" in told:
            return str(told["error"])


def until(line: ClientConnection, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Return the first report of which this is true."""
    for _ in range(900):
        told = hear(line)
        if condition(told):
            return told
    raise AssertionError(f"it never came true: {told}")


def begin(line: ClientConnection) -> dict[str, Any]:
    """Let the stick go and move it until the episode runs."""
    told, still = hear(line), True
    while told["phase"] == "ready":
        line.send(json.dumps({"stick": [0, 0 if still else 1], "device": "test"}))
        told, still = hear(line), not still
    return told


def play(line: ClientConnection, goals: int, task: str = "zigzag") -> dict[str, Any]:
    """Play with the expert's stick until so many goals are reached, and return the last report."""
    expert, told = AStarExpert(task, speed=1.0, directions=None), begin(line)
    while told["person"]["goals"] < goals and told["phase"] == "running":
        stick = expert.predict(_state(told))[0].tolist()
        line.send(json.dumps({"stick": stick, "device": "test"}))
        told = hear(line)
    return told


def _state(told: dict[str, Any]) -> Any:
    import numpy as np

    return np.array(told["person"]["state"], np.float32)


@pytest.mark.parametrize("path", ["/", "/static/app.js", "/api/overview", "/api/trainings", "/nothing"])
def test_nothing_without_the_token(server: Server, path: str) -> None:
    for cookie in ("", f"pidm-nav-{server.base.rpartition(':')[2]}={'x' * 32}"):
        code, text = server.refusal(path, Cookie=cookie)
        assert code == 403 and "token" in text
    assert server.refusal(f"{path}?token=wrong", Cookie="")[0] == 403


def test_the_link_sets_a_cookie_that_scripts_cannot_read(server: Server) -> None:
    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *arguments: Any) -> None:
            return None

    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.build_opener(Stay).open(server.link)
    cookie = caught.value.headers["set-cookie"].lower()
    assert caught.value.code == 303 and "httponly" in cookie and "samesite=strict" in cookie


def test_other_sites_are_refused(server: Server) -> None:
    code, text = server.refusal("/api/overview", Origin="http://evil.example")
    assert code == 403 and "evil.example" in text
    assert server.ask("/api/overview", Origin=server.base)["version"]
    for path in ("/play", "/watch"):
        with pytest.raises(InvalidStatus):
            server.socket(path, {}, origin="http://evil.example")
        with pytest.raises(InvalidStatus):
            connect(f"{server.base.replace('http', 'ws')}{path}", legacy=True)


@pytest.mark.parametrize(
    "first",
    [
        "not json",
        "[]",
        "{}",
        '{"world": 5}',
        '{"world": {"task": "nothing"}}',
        '{"world": {"task": "os:path"}}',
        '{"world": {"task": "custom"}}',
        '{"world": {"task": "custom", "map": "no map"}}',
        '{"world": {"task": "custom", "map": "/etc/passwd"}}',
        '{"world": {"task": "custom", "map": "' + "#" * 30_000 + '"}}',
        '{"world": {"task": "maze"}, "seed": -1}',
        '{"world": {"task": "maze"}, "seed": 1e99}',
        '{"world": {"task": "maze"}, "unknown": 1}',
        '{"world": {"task": "maze"}, "rival": "../../etc"}',
        '{"resume": "somebody"}',
        "[" * 50_000,
        *(
            '{"world": {"task": "maze"}, "file": "' + name + '"}'
            for name in ("../x.npz", "/x.npz", "a/b.npz", ".x.npz", "x", "")
        ),
    ],
)
def test_a_wrong_beginning_is_told(server: Server, folder: Path, first: str) -> None:
    before = sorted(folder.iterdir())
    with server.socket("/play", first) as line:
        assert complaint(line)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    "said", ["x", "[]", '{"stick": 5}', '{"commands": ["format"]}', '{"stick": [1, 2, 3]}', '{"x": 1}']
)
def test_a_wrong_message_ends_only_its_own_session(server: Server, said: str) -> None:
    with server.socket("/play", {"world": MAZE}) as other, server.socket("/play", {"world": MAZE}) as line:
        hear(line), hear(other)
        line.send(said)
        assert complaint(line)
        assert hear(other)["phase"] == "ready"


def test_messages_have_a_largest_size(server: Server) -> None:
    with server.socket("/play", {"world": MAZE}) as line:
        hear(line)
        line.send(json.dumps({"device": "x" * 100_000}))
        with pytest.raises(ConnectionClosed):
            while True:
                line.recv(timeout=30)
    assert server.ask("/api/overview")["version"]


def test_an_episode_recorded_in_the_browser_replays(server: Server, folder: Path) -> None:
    with server.socket("/play", {"world": {"task": "zigzag"}, "file": "mine.npz"}) as line:
        setup = hear(line)
        assert setup["file"] == "mine.npz" and len(setup["map"]["goals"]) == 6
        told = play(line, 6)
        assert told["kept"] == 1
        line.send(json.dumps({"commands": ["quit"]}))
        until(line, lambda told: told["phase"] == "over")
    demos = load_demos(folder / "mine.npz")
    assert len(demos) == 1 and demos.summary().success == 1 and not check_demos(demos).mismatches
    assert demos.source["settings"]["device"] == "test"
    listed = {each["name"]: each for each in server.ask("/api/overview")["recordings"]}
    assert listed["mine.npz"]["episodes"] == 1 and listed["maze/astar"]["episodes"] == 50


def test_a_lost_connection_pauses_and_can_be_resumed(server: Server) -> None:
    with server.socket("/play", {"world": {"task": "zigzag"}}) as line:
        session = hear(line)["session"]
        before = play(line, 1)
        with server.socket("/play", {"resume": session}) as second:
            refusal: dict[str, Any] = {}
            while not refusal:
                line.send(json.dumps({"device": "test"}))
                hear(line)
                with suppress(TimeoutError):
                    refusal = json.loads(second.recv(timeout=0))
            assert "another tab" in refusal["error"]
    with server.socket("/play", {"resume": session}) as line:
        assert len(hear(line)["trace"]) > before["person"]["steps"]
        told = hear(line)
        assert told["phase"] == "paused" and told["person"]["goals"] == 1
        line.send(json.dumps({"commands": ["pause"]}))
        until(line, lambda told: told["phase"] == "running")


def test_a_silent_page_is_paused_and_another_can_take_over(server: Server) -> None:
    with server.socket("/play", {"world": {"task": "zigzag"}}) as line:
        session = hear(line)["session"]
        play(line, 1)
        line.send(json.dumps({"stick": [1, 0]}))  # the last word before the network is gone
        steps = until(line, lambda told: told["phase"] == "paused")["person"]["steps"]
        with server.socket("/play", {"resume": session}) as second:
            hear(second)
            assert hear(second)["person"]["steps"] == steps
            assert "another tab" in complaint(line)


def test_what_was_kept_survives_a_kill(tmp_path: Path) -> None:
    server = Server(tmp_path)
    with server.socket("/play", {"world": {"task": "zigzag"}, "file": "mine.npz"}) as line:
        hear(line)
        play(line, 6)
        begin(line)  # the next episode, which begins when the last is on disk
        server.process.kill()
    server.process.wait(timeout=30)
    assert len(load_demos(tmp_path / "mine.npz")) == 1
    again = Server(tmp_path)
    with again.socket("/play", {"world": {"task": "zigzag"}, "file": "mine.npz"}) as line:
        hear(line)
        assert hear(line)["total"] == 1
    assert again.close() == 130
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine.npz"]


def test_twenty_people_at_once(server: Server) -> None:
    lines = [server.socket("/play", {"world": {"task": task}}) for task in ("maze", "zigzag") * 10]
    for line in lines:
        hear(line)
    for _ in range(30):
        for line in lines:
            hear(line)
    for line in lines:
        line.send(json.dumps({"commands": ["quit"]}))
    for line in lines:
        with pytest.raises(ConnectionClosed):
            while True:
                line.recv(timeout=30)


@pytest.mark.parametrize("name", ["..%2Fx.npz", ".x.npz", "x.txt", "x%00.npz"])
def test_uploads_stay_in_the_folder(server: Server, folder: Path, name: str) -> None:
    before = sorted(folder.iterdir())
    assert server.refusal(f"/api/demos/{name}", b"content")[0] in (400, 404)
    assert sorted(folder.iterdir()) == before


def test_uploads_are_demonstrations(server: Server, folder: Path) -> None:
    good = _packaged()
    assert server.ask("/api/demos/theirs.npz", good) == {"name": "theirs.npz"}
    assert "already" in server.refusal("/api/demos/theirs.npz", good)[1]
    assert server.refusal("/api/demos/bad.npz", good[:1000])[0] == 400
    assert "bytes" in server.refusal("/api/demos/large.npz", bytes(33_000_000))[1]
    assert len(load_demos(folder / "theirs.npz")) == 50
    assert not (folder / "bad.npz").exists() and not (folder / "large.npz").exists()


def _packaged() -> bytes:
    from importlib.resources import files

    return next(file for file in (files("pidm_nav.demos") / "data").iterdir() if "astar" in file.name).read_bytes()


def wait_for(server: Server, name: str) -> dict[str, Any]:
    while True:
        (run,) = [run for run in server.ask("/api/trainings") if run["name"] == name]
        if run["status"] != "running":
            return run
        PAUSE.wait(0.1)  # asking without a pause would take the processor from the training


@pytest.fixture(scope="module")
def agents(server: Server) -> list[str]:
    asked = {
        "agents": ["bc", "pidm"],
        "demos": "maze/human-like",
        "task": "maze",
        "num_demos": 2,
        "steps": 40,
        "play": True,
    }
    names = server.ask("/api/trainings", asked)["started"]
    assert "trainings are running" in server.refusal("/api/trainings", asked)[1]
    for name in names:
        run = wait_for(server, name)
        assert run["status"] == "done", run
        assert run["loss"][-1][0] == 40
        assert [step for step, _ in run["goal_ratio"]] == [8, 16, 24, 32, 40]
    return list(names)


def test_training_writes_agents_that_the_command_line_reads(server: Server, folder: Path, agents: list[str]) -> None:
    from pidm_nav import load_agent

    listed = {each["name"]: each for each in server.ask("/api/overview")["agents"]}
    assert {listed[name]["agent"] for name in agents} == {"bc", "pidm"} and listed[agents[0]]["demos"] == 2
    assert load_agent(folder / agents[0]).description["task"] == "maze"


def test_the_agents_of_the_package_can_be_watched(server: Server) -> None:
    listed = [each["name"] for each in server.ask("/api/overview")["agents"]]
    assert listed[-len(packaged_agents()) :] == list(packaged_agents())
    with server.socket("/watch", {"world": MAZE, "players": ["maze/pidm", "maze/bc"]}) as line:
        assert hear(line)["titles"] == ["PIDM", "BC"]


def test_a_training_can_be_stopped_and_a_failure_is_told(server: Server, agents: list[str]) -> None:
    asked = {"agents": ["bc"], "demos": "maze/human-like", "task": "maze", "steps": 1_000_000}
    (name,) = server.ask("/api/trainings", asked)["started"]
    server.ask(f"/api/trainings/{name}/stop", {})
    assert wait_for(server, name)["status"] == "stopped"
    (name,) = server.ask("/api/trainings", {**asked, "agents": ["telepathy"]})["started"]
    run = wait_for(server, name)
    assert run["status"] == "failed" and "telepathy" in run["error"]
    assert "no recording" in server.refusal("/api/trainings", {**asked, "demos": "none.npz"})[1]
    assert server.refusal("/api/trainings", {**asked, "demos": "../x.npz"})[0] == 400
    assert server.refusal("/api/trainings", {**asked, "num_demos": "many"})[0] == 400


def test_watching_shows_what_agents_think(server: Server, agents: list[str]) -> None:
    bc, pidm = sorted(agents)
    with server.socket("/watch", {"world": MAZE, "players": [pidm, bc, "astar"]}) as line:
        assert hear(line)["titles"] == ["PIDM", "BC", "A*"]
        line.send(json.dumps({"do": "pause", "field": True}))
        told = until(line, lambda told: not told["playing"] and "field" in told["players"][0])
        first, second, third = told["players"]
        assert len(first["action"]) == 2 and len(first["future"]) == 2 and len(first["followed"]) > 1
        assert len(first["field"]) == 48 and "future" not in second and "action" in third
        line.send(json.dumps({"do": "place", "at": [400, 700], "goals": 4}))
        told = until(line, lambda told: told["players"][0]["goals"] == 4)
        assert all(player["goals"] == 4 and player["steps"] == 0 for player in told["players"])
        assert (
            abs(told["players"][0]["state"][0] - 400) < 100
            and told["players"][0]["state"] == told["players"][1]["state"]
        )
        line.send(json.dumps({"do": "step"}))
        told = until(line, lambda told: told["players"][0]["steps"] > 0)
        assert [player["steps"] for player in told["players"]] == [1, 1, 1]


@pytest.mark.parametrize(
    "ask",
    [
        {"world": MAZE, "players": []},
        {"world": MAZE, "players": ["astar"] * 4},
        {"world": MAZE, "players": ["../x"]},
        {"world": {"task": "Pendulum-v1"}, "players": ["astar"]},
        {"world": MAZE, "players": ["astar"], "seed": -1},
        {"players": ["astar"]},
    ],
)
def test_what_cannot_be_watched_is_told(server: Server, ask: Any) -> None:
    with server.socket("/watch", ask) as line:
        assert complaint(line)


def test_a_taken_port_and_a_wrong_one_are_told(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    from pidm_nav.cli import main

    for port in (server.base.rpartition(":")[2], "70000"):
        with pytest.raises(SystemExit) as ended:
            main(["studio", "--no-browser", "--port", port])
        assert ended.value.code == 2 and port in capsys.readouterr().err


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("no chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield opened
        opened.close()


@contextmanager
def opened(browser: Any, server: Server, **settings: Any) -> Iterator[Any]:
    """Open the studio's page, and check that no script of it fails."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 850}, "bypass_csp": True} | settings)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(server.link)
    page.wait_for_selector("#play-form option[value=maze]", state="attached")
    yield page
    assert not errors
    context.close()


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    with opened(browser, server) as page:
        yield page


def start(page: Any, task: str, file: str) -> None:
    page.select_option("#play-form [name=task]", task)
    page.fill("[name=file]", file)
    page.click("#start")
    page.wait_for_selector("#session:not([hidden])")
    page.wait_for_function("document.getElementById('steps').textContent === '0'")


def step_until(page: Any, steps: int) -> None:
    page.wait_for_function(f"Number(document.getElementById('steps').textContent) >= {steps}")


def test_the_browser_records_with_keys_and_reloads_in_the_middle(page: Any, folder: Path) -> None:
    start(page, "maze", "keys.npz")
    page.keyboard.down("ArrowUp")
    step_until(page, 11)
    page.keyboard.up("ArrowUp")
    page.reload()
    page.wait_for_selector("#play-overlay:has-text('Paused')")
    assert int(page.inner_text("#steps")) > 10
    page.keyboard.press("p")
    page.keyboard.down("d")
    step_until(page, 26)
    page.keyboard.up("d")
    page.keyboard.press("Enter")
    page.wait_for_selector("#kept:has-text('1 now')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#play-form:not([hidden])")
    demos = load_demos(folder / "keys.npz")
    assert len(demos) == 1 and len(demos[0]) > 20 and not check_demos(demos).mismatches
    assert demos[0].actions[5, 1] == -1 and demos[0].actions[-3, 0] > 0.5


def test_the_browser_records_with_a_gamepad(page: Any, folder: Path) -> None:
    page.evaluate(
        """() => {
          const buttons = Array.from({ length: 17 }, () => ({ pressed: false }));
          window.pad = { id: "Test Pad", index: 0, connected: true, axes: [0, 0, 0, 0], buttons };
          navigator.getGamepads = () => [window.pad];
        }"""
    )
    start(page, "four-room", "pad.npz")
    page.evaluate("() => { pad.axes[0] = 0.1; }")  # a worn stick, within the dead zone
    page.wait_for_function("document.getElementById('steps').textContent === '0'")
    page.evaluate("() => { pad.axes[0] = 0.8; pad.axes[1] = -0.2; }")
    step_until(page, 9)
    assert page.inner_text("#device") == "Test Pad"
    gone = "Object.assign(new Event('gamepaddisconnected'), { gamepad: pad })"
    page.evaluate(f"() => {{ pad.connected = false; dispatchEvent({gone}); }}")
    page.wait_for_selector("#play-overlay:has-text('Test Pad was unplugged')")
    page.evaluate("() => { pad.connected = true; pad.buttons[9].pressed = true; }")  # plugged in again: Start goes on
    page.wait_for_selector("#play-overlay", state="hidden")
    page.evaluate("() => { pad.buttons[9].pressed = false; }")
    step_until(page, 15)
    page.evaluate("() => { pad.axes.fill(0); pad.buttons[3].pressed = true; }")
    page.wait_for_selector("#kept:has-text('1 now')")
    page.evaluate("() => { pad.buttons[3].pressed = false; pad.buttons[8].pressed = true; }")
    page.wait_for_selector("#play-form:not([hidden])")
    demos = load_demos(folder / "pad.npz")
    assert demos.source["settings"]["device"] == "Test Pad" and demos[0].actions[4, 0] > 0.5


def test_the_browser_trains_watches_and_drags(page: Any, agents: list[str]) -> None:
    page.click("#tab-train")
    page.wait_for_selector(".run[data-status=done]")
    page.click(".run[data-status=done] button:has-text('Watch it')")
    page.wait_for_selector("#watching:not([hidden])")
    page.click("#toggle")
    page.wait_for_selector("#toggle:has-text('Play')")
    box = page.locator("#watch-canvas").bounding_box()
    at = [box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.85]
    page.click("#restart")
    page.wait_for_selector("#scores li:first-child:has-text('step 0')")
    start = json.loads(page.evaluate("() => JSON.stringify(studioWatched().players[0].state.slice(0, 2))"))
    page.mouse.move(box["x"] + start[0] / 800 * box["width"], box["y"] + start[1] / 800 * box["height"])
    page.mouse.down()
    page.mouse.move(*at, steps=5)
    page.mouse.up()
    page.wait_for_function("() => studioWatched().players[0].state[1] > 600")
    page.click("#step")
    page.wait_for_selector("#scores li:first-child:has-text('step 1')")


def test_the_browser_records_with_a_finger(browser: Any, server: Server, folder: Path) -> None:
    phone = {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True}
    with opened(browser, server, **phone) as page:
        start(page, "maze", "finger.npz")
        box = page.locator("#play-canvas").bounding_box()
        assert box["y"] >= 0 and box["y"] + box["height"] <= 800  # the map is in sight
        x, y = box["x"] + 100, box["y"] + 200
        touch = page.context.new_cdp_session(page)
        for kind, points in (("touchStart", [{"x": x, "y": y}]), ("touchMove", [{"x": x, "y": y - 50}])):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        step_until(page, 9)
        assert page.is_visible("#touch") and page.inner_text("#device") == "touch"
        touch.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        page.wait_for_selector("#touch", state="hidden")
        page.tap("#commands button:has-text('keep it')")
        page.wait_for_selector("#kept:has-text('1 now')")
        page.tap("#commands button:has-text('Finish')")
        page.wait_for_selector("#play-form:not([hidden])")
    assert load_demos(folder / "finger.npz")[0].actions[4, 1] == -1


def test_the_page_goes_on_after_a_lost_connection(browser: Any, tmp_path: Path) -> None:
    server = Server(tmp_path, token="stays-the-same")
    with ExitStack() as stack, opened(browser, server) as page:
        stack.callback(server.close)
        lines = "(Real) => { window.lines = []; window.WebSocket = class extends Real { "
        page.evaluate(f"() => ({lines} constructor(url) {{ super(url); lines.push(this); }} }}; }})(WebSocket)")
        start(page, "maze", "mine.npz")
        page.keyboard.down("ArrowUp")
        step_until(page, 6)
        page.keyboard.up("ArrowUp")
        step_until(page, 15)  # meanwhile the stick comes back, which the next episode waits for
        page.keyboard.press("Enter")
        page.wait_for_selector("#kept:has-text('1 now, 1 in mine.npz')")
        page.keyboard.down("ArrowUp")
        step_until(page, 6)
        page.evaluate("() => lines[0].close()")  # the network: the session waits
        page.wait_for_selector("#play-overlay:has-text('lost')")
        page.keyboard.up("ArrowUp")
        page.wait_for_selector("#play-overlay:has-text('Press P')")
        steps = int(page.inner_text("#steps"))
        assert steps >= 6 and page.inner_text("#kept") == "1 now, 1 in mine.npz"
        page.keyboard.press("p")
        page.keyboard.down("ArrowDown")
        step_until(page, steps + 3)
        server.process.kill()  # the server: what was kept is in the file
        server.process.wait(timeout=30)
        page.wait_for_selector("#play-overlay:has-text('lost')")
        page.wait_for_selector("#alert:has-text('does not answer')")
        page.keyboard.up("ArrowDown")
        stack.callback(Server(tmp_path, server.base.rpartition(":")[2], server.token).close)
        page.wait_for_selector("#kept:has-text('0 now, 1 in mine.npz')")
        page.wait_for_selector("#alert", state="hidden")
        page.keyboard.down("ArrowUp")
        step_until(page, 6)
        page.keyboard.up("ArrowUp")
        page.keyboard.press("Enter")
        page.wait_for_selector("#kept:has-text('1 now, 2 in mine.npz')")
    demos = load_demos(tmp_path / "mine.npz")
    assert len(demos) == 2 and not check_demos(demos).mismatches


@pytest.mark.skipif(find_spec("vizdoom") is None, reason="vizdoom is not installed")
def test_the_browser_records_and_watches_in_3d(page: Any, folder: Path) -> None:
    colors = """(id) => {
      const canvas = document.getElementById(id), { width, height } = canvas;
      return [width, height, new Set(canvas.getContext("2d").getImageData(0, 0, width, height).data).size];
    }"""
    start(page, "tour-3d", "walk.npz")
    page.wait_for_selector("#next:has-text('turn round')")
    assert "turn with J and L" in page.inner_text("#device-hint")
    page.keyboard.down("l")
    page.wait_for_selector("#goals:has-text('1 of 11')")
    page.keyboard.up("l")
    assert page.inner_text("#next") != "turn round"
    width, height, shades = page.evaluate(colors, "play-canvas")
    assert width > height > 200 and shades > 50
    page.keyboard.press("Enter")
    page.wait_for_selector("#kept:has-text('1 now')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#play-form:not([hidden])")
    demos = load_demos(folder / "walk.npz")
    assert demos.task == "tour-3d" and not check_demos(demos).mismatches
    page.click("#tab-watch")
    page.select_option("#watch-form [name=task]", "tour-3d")
    for number in range(2):
        page.locator("#watch-form [name=player]").nth(number).select_option("scripted")
    page.click("#watch-form button")
    page.wait_for_selector("#scores li:nth-child(2):has-text('1 of 11')")
    assert page.is_hidden("#thoughts")
    wide, _, shades = page.evaluate(colors, "watch-canvas")
    assert wide == 2 * width and shades > 50
    page.click("#toggle")
    page.wait_for_selector("#toggle:has-text('Play')")


def test_a_map_of_ones_own_is_recorded_trained_on_and_watched(page: Any, server: Server) -> None:
    page.select_option("#play-form [name=task]", "custom")
    page.fill("[name=map]", "##########\n#........#\n#.A....1.#\n#........#\n##########")
    start(page, "custom", "own.npz")
    page.keyboard.down("ArrowRight")
    step_until(page, 9)
    page.keyboard.up("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#kept:has-text('1 now')")
    page.keyboard.press("Escape")
    page.wait_for_selector("#play-form:not([hidden])")
    asked = {"agents": ["retrieval-bc"], "demos": "own.npz", "task": "custom"}
    (name,) = server.ask("/api/trainings", asked)["started"]
    assert wait_for(server, name)["status"] == "done"
    page.click("#tab-train")
    page.click(f".run:has-text('{name}') button:has-text('Watch it')")
    page.wait_for_function("() => studioWatched()?.players[0].nearest?.length === 2")
    assert "of 1 goals" in page.inner_text("#scores")


def test_a_recording_is_dropped_onto_the_page(page: Any) -> None:
    page.evaluate(
        """(bytes) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([new Uint8Array(bytes)], "dropped.npz"));
          for (const name of ["dragover", "drop"]) document.body.dispatchEvent(
            new DragEvent(name, { dataTransfer, bubbles: true, cancelable: true }));
        }""",
        list(_packaged()),
    )
    page.wait_for_function("document.querySelector('#train-form [name=demos]').value === 'dropped.npz'")
    assert page.is_visible("#train-form")


def test_a_wrong_map_is_told_while_it_is_drawn(page: Any) -> None:
    page.select_option("#play-form [name=task]", "custom")
    page.wait_for_selector("#map-editor:not([hidden])")
    assert page.is_hidden("#alert")
    page.fill("[name=map]", "####\n#S #\n####")
    page.wait_for_selector("#alert:not([hidden])")
    assert "goal" in page.inner_text("#alert")


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1280, "dark")])
def test_no_page_is_wider_than_the_screen(browser: Any, server: Server, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.goto(server.link)
    for tab in ("play", "train", "watch"):
        page.click(f"#tab-{tab}")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.documentElement.classList.contains('dark')") == (scheme == "dark")
    context.close()
