"""The studio as pages meet it: a real server and real sockets."""

import json
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pidm_nav import load_demos
from pidm_nav.agents import AGENTS
from pidm_nav.demos.replay import check_demos
from pidm_nav.packaged import packaged_agents

pytest.importorskip("starlette", reason="the studio needs the extra `studio`")
from studio_server import MAZE, Server, begin, complaint, hear, packaged, play, until, wait_for
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect


@pytest.fixture(scope="module")
def agents(server: Server) -> list[str]:
    """Two agents that the studio has trained, BC and PIDM."""
    asked = {
        "agents": ["bc", "pidm"],
        "demos": "maze/human-like",
        "num_demos": 2,
        "steps": 40,
        "play": True,
    }
    names = server.ask("/api/trainings", asked)["started"]
    assert "training runs are active" in server.refusal("/api/trainings", asked)[1]
    for name in names:
        run = wait_for(server, name)
        assert run["status"] == "done", run
        assert run["loss"][-1][0] == 40
        assert run["metric"] == "goal_ratio" and run["steps"] == 40
        assert [step for step, _ in run["scores"]] == [8, 16, 24, 32, 40]
    return list(names)


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
    assert caught.value.code == 303 and "httponly" in cookie and "samesite=lax" in cookie


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
    "said", ["x", b"x", "[]", '{"stick": 5}', '{"pressed": ["format"]}', '{"stick": [1, 2, 3]}', '{"x": 1}']
)
def test_a_wrong_message_ends_only_its_own_session(server: Server, said: str | bytes) -> None:
    with server.socket("/play", {"world": MAZE}) as other, server.socket("/play", {"world": MAZE}) as line:
        hear(line), hear(other)
        line.send(said)
        assert len(complaint(line)) > len("'text'")
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
        play(line, 6)
        until(line, lambda told: told["kept"] == 1)
        line.send(json.dumps({"pressed": ["quit"]}))
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
        line.send(json.dumps({"pressed": ["pause"]}))
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


@pytest.mark.thorough
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
        line.send(json.dumps({"pressed": ["quit"]}))
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
    good = packaged()
    assert server.ask("/api/demos/theirs.npz", good) == {"name": "theirs.npz"}
    assert "already" in server.refusal("/api/demos/theirs.npz", good)[1]
    assert server.refusal("/api/demos/bad.npz", good[:1000])[0] == 400
    assert "bytes" in server.refusal("/api/demos/large.npz", bytes(33_000_000))[1]
    assert len(load_demos(folder / "theirs.npz")) == 50
    assert not (folder / "bad.npz").exists() and not (folder / "large.npz").exists()


@pytest.mark.thorough
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
    asked = {"agents": ["bc"], "demos": "maze/human-like", "steps": 1_000_000}
    (name,) = server.ask("/api/trainings", asked)["started"]
    server.ask(f"/api/trainings/{name}/stop", {})
    assert wait_for(server, name)["status"] == "stopped"
    assert "telepathy" in server.refusal("/api/trainings", {**asked, "agents": ["telepathy"]})[1]
    (name,) = server.ask("/api/trainings", {**asked, "seed": -99})["started"]
    run = wait_for(server, name)
    assert run["status"] == "failed" and "-99" in run["error"]
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


def test_every_registered_agent_can_be_chosen(server: Server) -> None:
    listed = server.ask("/api/agents")
    assert {each["name"] for each in listed} == set(AGENTS)
    assert [each["name"] for each in listed if each["main"]] == ["bc", "pidm", "delta-pidm"]
    assert all(each["title"] and each["about"] for each in listed)
