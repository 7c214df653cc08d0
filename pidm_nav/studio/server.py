"""The studio's server: one page, its files, a little JSON, and a socket for playing and one for watching."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp
from starlette.websockets import WebSocket

from pidm_nav.console import printable
from pidm_nav.demos.recorder.controls import Controls
from pidm_nav.studio import play, recordings, sockets, watch
from pidm_nav.studio.access import BACKLOG, Guard, ImpatientProtocol
from pidm_nav.studio.folder import Folder, WorldRequest, picture
from pidm_nav.studio.training import Trainings, TrainRequest, trainable_agents
from pidm_nav.tasks import TASKS
from pidm_nav.version import __version__

MAX_SESSIONS, MAX_WATCHES = 32, 16  # at once
MAX_MESSAGE = 64_000  # bytes of a message on a socket, or of a small request
BODY_SECONDS, UPLOAD_SECONDS = 10.0, 300.0  # for the body of a small request, and of a file
STATIC = files("pidm_nav.studio") / "static"
Handler = Callable[[Request], Awaitable[Response]]


@dataclass
class Studio:
    """What all pages share."""

    folder: Folder
    trainings: Trainings
    sessions: dict[str, play.PlayerConnection] = field(default_factory=dict)
    watches: int = 0
    admission_lock: asyncio.Lock = field(default_factory=asyncio.Lock)  # one after the other, so that limits hold

    def connect(self, begin: play.Begin) -> tuple[str, play.PlayerConnection]:
        """Return the session that a page asks for, a new one or the one it had."""
        for name, player in list(self.sessions.items()):  # nobody has come back to these
            if player.over or (player.stepping is None and time.monotonic() - player.heard > play.MAX_WAIT):
                self.leave(name)
        if begin.resume in self.sessions:
            return begin.resume, self.sessions[begin.resume]
        if len(self.sessions) >= MAX_SESSIONS:
            left = {name: player.heard for name, player in self.sessions.items() if player.stepping is None}
            if not left:
                raise ValueError(f"{MAX_SESSIONS} people are playing: wait until one of them stops")
            self.leave(min(left, key=left.__getitem__))
        name = secrets.token_urlsafe(12)
        self.sessions[name] = player = play.PlayerConnection.open(begin, self.folder)
        return name, player

    def leave(self, name: str) -> None:
        """Close a session, unless it is closed; what was kept is on disk."""
        if player := self.sessions.pop(name, None):
            player.close()

    def close(self) -> None:
        """Close everything."""
        for name in list(self.sessions):
            self.leave(name)
        self.trainings.close()


def make_app(folder: Path, token: str, host: str = "127.0.0.1") -> ASGIApp:
    """Return the studio of a folder."""
    place = Folder(folder.resolve())
    studio = Studio(place, Trainings(place))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        studio.close()

    async def index(request: Request) -> Response:
        return Response((STATIC / "index.html").read_bytes(), media_type="text/html")

    routes = [
        Route("/", index),
        *(Route(path, _answer(studio, handler), methods=["GET"]) for path, handler in GET.items()),
        *(Route(path, _answer(studio, handler, kind), methods=["POST"]) for path, (kind, handler) in POST.items()),
        WebSocketRoute("/play", _play(studio)),
        WebSocketRoute("/watch", _watch(studio)),
        Mount("/static", StaticFiles(packages=[("pidm_nav.studio", "static")])),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), token, host)


def _overview(studio: Studio) -> Any:
    tasks = [
        {"name": task.name, "title": task.title, "experts": task.experts}
        for task in TASKS.values()
        if task.has_2d_state or find_spec("vizdoom")
    ]
    listed = {"recordings": studio.folder.recordings(), "agents": studio.folder.agents()}
    listed["trainings"] = studio.trainings.report()
    return {"version": __version__, "folder": printable(studio.folder.path.name), "tasks": tasks, **listed}


def _world(asked: WorldRequest) -> Any:
    task, env_kwargs = asked.resolve()
    layout = task.layout(env_kwargs) if task.has_2d_state else None
    return {"task": task.name, "title": task.title, "map": picture(layout)}


# What pages ask for, with the parts of the path as keywords; what they send is decoded as the type beside the function.
GET: dict[str, Callable[..., Any]] = {
    "/api/overview": _overview,
    "/api/controls": lambda studio: play.controls_for_browsers(Controls()),
    "/api/agents": lambda studio: trainable_agents(),  # apart from the overview, as it imports torch
    "/api/trainings": lambda studio: studio.trainings.report(),
    "/api/episodes/{name:path}": lambda studio, name: recordings.list_episodes(studio.folder, name),
    "/api/states/{name:path}/{episode:int}": lambda studio, **asked: recordings.read_states(studio.folder, **asked),
}
POST: dict[str, tuple[Any, Callable[..., Any]]] = {
    "/api/world": (WorldRequest, lambda studio, asked: _world(asked)),
    "/api/demos/{name}": (bytes, lambda studio, asked, name: recordings.upload(studio.folder, name, asked)),
    "/api/demos/{name}/edit": (
        recordings.EditRequest,
        lambda studio, asked, name: recordings.edit(studio.folder, name, asked),
    ),
    "/api/trainings": (TrainRequest, lambda studio, asked: {"started": studio.trainings.start(asked)}),
    "/api/trainings/{name:path}/stop": (Any, lambda studio, asked, name: studio.trainings.stop(name)),
    "/api/trainings/{name:path}/rename": (str, lambda studio, asked, name: studio.trainings.rename(name, asked)),
    "/api/trainings/{name:path}/delete": (Any, lambda studio, asked, name: studio.trainings.delete(name)),
}


def _answer(studio: Studio, handler: Callable[..., Any], kind: Any = None) -> Handler:
    """Answer requests in a thread, so that nobody's episode waits; errors become a sentence."""

    async def answer(request: Request) -> Response:
        status, given = 200, []
        try:
            if kind is not None:
                content = await _body(request, upload=kind is bytes)
                given = [content if kind is bytes else msgspec.json.decode(content, type=kind)]
            answered = await asyncio.to_thread(handler, studio, *given, **request.path_params)
        except (ValueError, OSError, ImportError) as error:
            answered, status = {"error": studio.folder.explain(error)}, 400
        except ClientDisconnect:
            return Response(status_code=400)
        return Response(msgspec.json.encode(answered), status, media_type="application/json")

    return answer


async def _body(request: Request, upload: bool) -> bytes:
    """Read a request's body, of limited size and within a limited time."""
    most, seconds = (recordings.MAX_UPLOAD, UPLOAD_SECONDS) if upload else (MAX_MESSAGE, BODY_SECONDS)

    async def read() -> bytes:
        content = bytearray()
        async for part in request.stream():
            content += part
            if len(content) > most:
                raise ValueError(f"the request has more than {most:,} bytes: send less")
        return bytes(content)

    try:
        return await asyncio.wait_for(read(), seconds)
    except asyncio.TimeoutError:
        raise ValueError("the rest of the request did not arrive in time: send it again") from None


def _play(studio: Studio) -> Callable[[WebSocket], Awaitable[None]]:
    async def play_socket(socket: WebSocket) -> None:
        async with sockets.conversation(socket, studio.folder) as send:
            begin = await sockets.first_message(socket, play.Begin)
            async with studio.admission_lock:
                name, player = await asyncio.to_thread(studio.connect, begin)
            await _take_over(player)
            player.heard = time.monotonic()
            player.stepping = stepping = asyncio.create_task(sockets.run(player, socket, send))
            try:
                await send({"session": name, **player.setup()})
                await sockets.listen(socket, play.Input, player.receive, stepping)
                if player.stepping is not stepping:
                    raise ValueError("this session continues in another tab")
            finally:
                if player.stepping is stepping:
                    await sockets.end(stepping)
                    player.leave()
                if player.over:
                    await asyncio.to_thread(studio.leave, name)

    return play_socket


async def _take_over(player: play.PlayerConnection) -> None:
    """Take a session from a page that is gone, which the server may notice late."""
    waited = 0.0
    while not player.silent:
        if waited > play.SILENCE:
            raise ValueError("this session is open in another tab: continue there")
        await asyncio.sleep(0.1)
        waited += 0.1
    if (stepping := player.stepping) is not None:
        player.leave()
        await sockets.end(stepping)


def _watch(studio: Studio) -> Callable[[WebSocket], Awaitable[None]]:
    async def watch_socket(socket: WebSocket) -> None:
        async with sockets.conversation(socket, studio.folder) as send:
            request = await sockets.first_message(socket, watch.WatchRequest)
            if studio.watches >= MAX_WATCHES:
                raise ValueError(f"{MAX_WATCHES} people are watching: wait until one of them stops")
            studio.watches += 1
            try:
                show = await asyncio.to_thread(watch.Watch, request, studio.folder)
                with contextlib.closing(show):
                    await send(show.setup())
                    stepping = asyncio.create_task(sockets.run(show, socket, send))
                    await sockets.listen(socket, watch.Order, show.receive, stepping)
            finally:
                studio.watches -= 1

    return watch_socket


def serve(folder: Path, host: str, port: int, token: str, ready: Callable[[int], None]) -> None:
    """Serve until Ctrl-C; `ready` is called with the port when pages can be opened."""

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready(self.servers[0].sockets[0].getsockname()[1])

    settings: dict[str, Any] = {"log_level": "error", "ws": "websockets-sansio", "ws_max_size": MAX_MESSAGE}
    settings |= {"http": ImpatientProtocol, "backlog": BACKLOG}
    Server(uvicorn.Config(make_app(folder, token, host), host, port, **settings)).run()
