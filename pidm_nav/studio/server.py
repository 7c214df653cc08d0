"""The studio's server: one page, its files, a little JSON, and a socket for playing and one for watching.

Every request needs the token that is in the printed link, in the query or in the cookie that the first page sets; a
request with the Origin of another site is refused, so that no other page can use the cookie.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from starlette.applications import Starlette
from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from pidm_nav.demos.formats import load_demos
from pidm_nav.files import write_bytes
from pidm_nav.studio import play, watch
from pidm_nav.studio.folder import MOST_BYTES, Folder, World, picture
from pidm_nav.studio.training import Request as TrainRequest
from pidm_nav.studio.training import Trainings
from pidm_nav.tasks import TASKS
from pidm_nav.version import __version__

MOST_SEATS, MOST_WATCHES = 32, 16  # sessions at once
MOST_MESSAGE = 64_000  # bytes of a message on a socket
LATE = 0.1  # seconds of steps that are caught up with
STATIC = files("pidm_nav.studio") / "static"
Handler = Callable[[Request], Awaitable[Response]]
Sender = Callable[[Any], Awaitable[None]]


@dataclass
class Studio:
    """What all pages share."""

    folder: Folder
    trainings: Trainings
    seats: dict[str, play.Seat] = field(default_factory=dict)
    watches: int = 0
    door: asyncio.Lock = field(default_factory=asyncio.Lock)  # one comes in after the other, so that limits hold

    def seat(self, begin: play.Begin) -> tuple[str, play.Seat]:
        """Return the session that a page asks for, a new one or the one it had."""
        for name, seat in list(self.seats.items()):  # nobody has come back to these
            if seat.over or (seat.stepping is None and time.monotonic() - seat.heard > play.MOST_WAITING):
                self.leave(name)
        if begin.resume in self.seats:
            return begin.resume, self.seats[begin.resume]
        if len(self.seats) >= MOST_SEATS:
            left = {name: seat.heard for name, seat in self.seats.items() if seat.stepping is None}
            if not left:
                raise ValueError(f"{MOST_SEATS} people are playing: wait until one of them stops")
            self.leave(min(left, key=left.__getitem__))
        name = secrets.token_urlsafe(12)
        self.seats[name] = seat = play.Seat.take(begin, self.folder)
        return name, seat

    def leave(self, name: str) -> None:
        """Close a session, unless it is closed; what was kept is on disk."""
        if seat := self.seats.pop(name, None):
            seat.session.close()

    def close(self) -> None:
        """Close everything."""
        for name in list(self.seats):
            self.leave(name)
        self.trainings.close()


class Guard:
    """Lets only requests with the token in, and none that another site's page sends."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        given = connection.query_params.get("token", "")
        cookie = f"pidm-nav-{connection.url.port or 80}"
        known = [given, connection.cookies.get(cookie, "")]
        origin = connection.headers.get("origin")
        reason = ""
        if not any(secrets.compare_digest(each.encode(), self.token.encode()) for each in known):
            reason = "Open the link that pidm-nav studio printed: it holds the token that this page lacks."
        elif origin is not None and urlsplit(origin).netloc != connection.headers.get("host"):
            reason = f"A page of {origin} may not use this studio."
        if scope["type"] == "websocket" and reason:
            await WebSocket(scope, receive, send).close(1008, reason[:120])
        elif reason:
            await PlainTextResponse(reason, 403)(scope, receive, send)
        elif scope["type"] == "http" and given and scope["path"] == "/":
            answer = RedirectResponse("/", 303)
            answer.set_cookie(cookie, self.token, httponly=True, samesite="strict")
            await answer(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def make_app(folder: Path, token: str) -> ASGIApp:
    """Return the studio of a folder."""
    place = Folder(folder.resolve())
    studio = Studio(place, Trainings(place))

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        yield
        studio.close()

    async def index(request: Request) -> Response:
        headers = {
            "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; style-src 'self' 'unsafe-inline'"
        }
        return Response((STATIC / "index.html").read_bytes(), media_type="text/html", headers=headers)

    async def overview(request: Request) -> Response:
        tasks = [
            {"name": task.name, "title": task.title, "experts": task.experts}
            for task in TASKS.values()
            if task.has_2d_state or find_spec("vizdoom")
        ]
        recordings, agents = await asyncio.to_thread(lambda: (place.recordings(), place.agents()))
        content = {"version": __version__, "folder": place.path.name, "tasks": tasks}
        return _json({**content, "recordings": recordings, "agents": agents, "trainings": studio.trainings.report()})

    async def world(request: Request) -> Response:
        task, env_kwargs = msgspec.json.decode(await _body(request, MOST_MESSAGE), type=World).resolve()
        layout = task.layout(env_kwargs) if task.has_2d_state else None
        return _json({"task": task.name, "title": task.title, "map": picture(layout)})

    async def upload(request: Request) -> Response:
        path = place.file(request.path_params["name"])
        if path.exists():
            raise FileExistsError(f"there is a recording '{path.name}' already: rename yours")
        content = await _body(request, MOST_BYTES)
        await asyncio.to_thread(_keep, path, content)
        return _json({"name": path.name})

    async def trainings(request: Request) -> Response:
        if request.method == "POST":
            asked = msgspec.json.decode(await _body(request, MOST_MESSAGE), type=TrainRequest)
            return _json({"started": await asyncio.to_thread(studio.trainings.start, asked)})
        return _json(studio.trainings.report())

    async def stop(request: Request) -> Response:
        studio.trainings.find(request.path_params["name"]).stop()
        return _json({})

    async def play_socket(socket: WebSocket) -> None:
        async with _conversation(socket) as send:
            begin = msgspec.json.decode(await socket.receive_text(), type=play.Begin)
            async with studio.door:
                name, seat = await asyncio.to_thread(studio.seat, begin)
            await _take_over(seat)
            seat.heard = time.monotonic()
            seat.stepping = stepping = asyncio.create_task(_run(seat, socket, send))
            try:
                await send({"session": name, **seat.setup()})
                await _listen(socket, play.Input, seat.hear, stepping)
                if seat.stepping is not stepping:
                    raise ValueError("this session goes on in another tab")
            finally:
                if seat.stepping is stepping:
                    seat.leave()
                if seat.over:
                    await asyncio.to_thread(studio.leave, name)

    async def watch_socket(socket: WebSocket) -> None:
        async with _conversation(socket) as send:
            if studio.watches >= MOST_WATCHES:
                raise ValueError(f"{MOST_WATCHES} people are watching: wait until one of them stops")
            studio.watches += 1
            try:
                ask = msgspec.json.decode(await socket.receive_text(), type=watch.Ask)
                show = await asyncio.to_thread(watch.Watch, ask, place)
                with contextlib.closing(show):
                    await send(show.setup())
                    await _listen(socket, watch.Order, show.hear, asyncio.create_task(_run(show, socket, send)))
            finally:
                studio.watches -= 1

    routes = [
        Route("/", index),
        Route("/api/overview", _answer(overview)),
        Route("/api/world", _answer(world), methods=["POST"]),
        Route("/api/demos/{name}", _answer(upload), methods=["POST"]),
        Route("/api/trainings", _answer(trainings), methods=["GET", "POST"]),
        Route("/api/trainings/{name:path}/stop", _answer(stop), methods=["POST"]),
        WebSocketRoute("/play", play_socket),
        WebSocketRoute("/watch", watch_socket),
        Mount("/static", StaticFiles(packages=[("pidm_nav.studio", "static")])),
    ]
    return Guard(Starlette(routes=routes, lifespan=lifespan), token)


def _json(content: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(content), status, media_type="application/json")


def _answer(handler: Handler) -> Handler:
    """Turn errors that a person can do something about into a sentence."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except (ValueError, OSError, ImportError) as error:
            return _json({"error": str(error)}, 400)

    return answer


async def _body(request: Request, most: int) -> bytes:
    """Read a request's body, up to a number of bytes."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > most:
            raise ValueError(f"that is more than {most:,} bytes: send less")
    return bytes(content)


def _keep(path: Path, content: bytes) -> None:
    """Write an uploaded file if it holds demonstrations."""
    write_bytes(path, content)
    try:
        load_demos(path)
    except (ValueError, OSError):
        path.unlink()
        raise


@contextlib.asynccontextmanager
async def _conversation(socket: WebSocket) -> AsyncIterator[Sender]:
    """Accept a socket, and end with a sentence where something is wrong."""
    await socket.accept()

    async def send(content: Any) -> None:
        await socket.send_text(msgspec.json.encode(content).decode())

    try:
        yield send
    except WebSocketDisconnect:
        return
    except (ValueError, OSError, ImportError, KeyError) as error:
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await send({"error": str(error)})
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await socket.close()


async def _take_over(seat: play.Seat) -> None:
    """Take a session from a page that is gone, which the server may notice late."""
    waited = 0.0
    while not seat.silent:
        if waited > play.SILENCE:
            raise ValueError("this session is open in another tab: go on there")
        await asyncio.sleep(0.1)
        waited += 0.1
    if seat.stepping is not None:
        seat.stepping.cancel()
        seat.leave()


async def _run(show: play.Seat | watch.Watch, socket: WebSocket, send: Sender) -> None:
    """Step at the person's speed until it is over, and send what there is to see."""

    def step() -> tuple[bytes | None, dict[str, Any]]:
        show.tick()
        frame = show.picture()
        return None if frame is None else _jpeg(frame), show.report()

    clock = asyncio.get_running_loop().time
    due = clock()
    while not show.over:
        picture, report = step() if show.quick else await _in_thread(step)
        if picture is not None:
            await socket.send_bytes(picture)
        await send(report)
        due = max(due + 1 / show.fps, clock() - LATE)
        await asyncio.sleep(max(due - clock(), 0))


async def _in_thread(work: Callable[[], Any]) -> Any:
    """Let others go on meanwhile, and wait for the end even if nobody wants the result any more."""
    task = asyncio.create_task(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    finally:
        await asyncio.wait([task])


async def _listen(socket: WebSocket, kind: Any, hear: Callable[[Any], None], stepping: asyncio.Task[None]) -> None:
    """Hand every message on until the page leaves or the stepping ends."""

    async def listen() -> None:
        while True:
            hear(msgspec.json.decode(await socket.receive_text(), type=kind))

    both = {asyncio.create_task(listen()), stepping}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            task.cancel()
        ends = await asyncio.gather(*both, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end


def _jpeg(frame: Any) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(frame).save(content, "JPEG", quality=85)
    return content.getvalue()


def serve(folder: Path, host: str, port: int, token: str, ready: Callable[[int], None]) -> None:
    """Serve until Ctrl-C; `ready` is called with the port when pages can be opened."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            if self.started:
                ready(self.servers[0].sockets[0].getsockname()[1])

    settings: dict[str, Any] = {"log_level": "error", "ws": "websockets-sansio", "ws_max_size": MOST_MESSAGE}
    Server(uvicorn.Config(make_app(folder, token), host, port, **settings)).run()
