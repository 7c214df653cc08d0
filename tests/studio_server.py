"""A studio in a process of its own, and the conversations that tests have with it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from websockets.sync.client import ClientConnection, connect

from pidm_nav import AStarExpert

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

    def socket(self, path: str, first: Any, silent: bool = False, **settings: Any) -> ClientConnection:
        line = connect(f"{self.base.replace('http', 'ws')}{path}?token={self.token}", legacy=True, **settings)
        if not silent:
            line.send(first if isinstance(first, str | bytes) else json.dumps(first))
        return line

    def close(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=30)


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
    return np.array(told["person"]["state"], np.float32)


def packaged() -> bytes:
    return next(file for file in (files("pidm_nav.demos") / "data").iterdir() if "astar" in file.name).read_bytes()


def wait_for(server: Server, name: str) -> dict[str, Any]:
    while True:
        (run,) = [run for run in server.ask("/api/trainings") if run["name"] == name]
        if run["status"] != "running":
            return run
        PAUSE.wait(0.1)  # asking without a pause would take the processor from the training


def train_briefly(server: Server) -> str:
    """Let the studio train an agent for a few steps, and return its name."""
    (name,) = server.ask("/api/trainings", {"agents": ["bc"], "demos": "maze/astar", "steps": 4})["started"]
    assert wait_for(server, name)["status"] == "done"
    return str(name)


@contextmanager
def opened(browser: Any, server: Server, **settings: Any) -> Iterator[Any]:
    """Open the studio's page, and check that no script of it fails."""
    context = browser.new_context(**{"viewport": {"width": 1200, "height": 850}, "bypass_csp": True} | settings)
    page = context.new_page()
    page.set_default_timeout(120_000)  # a busy machine takes long to train
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto(server.link)
    page.wait_for_selector("#play-form option[value=maze]", state="attached")
    yield page
    assert not errors
    context.close()


def start(page: Any, task: str, file: str) -> None:
    page.select_option("#play-form [name=task]", task)
    page.fill("[name=file]", file)
    page.click("#start")
    page.wait_for_selector("#session:not([hidden])")
    page.wait_for_function("document.getElementById('steps').textContent === '0'")


def step_until(page: Any, steps: int) -> None:
    page.wait_for_function(f"Number(document.getElementById('steps').textContent) >= {steps}")
