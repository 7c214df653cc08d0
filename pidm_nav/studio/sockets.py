"""WebSockets of pages that play or watch: steps at the person's speed, and messages meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from pidm_nav.studio.folder import Folder
from pidm_nav.studio.play import PlayerConnection
from pidm_nav.studio.watch import Watch

LATE = 0.1  # seconds of steps that are caught up with
FIRST_WORD = 10.0  # seconds for a page to say what it wants
Sender = Callable[[Any], Awaitable[None]]
Message = TypeVar("Message")


@contextlib.asynccontextmanager
async def conversation(socket: WebSocket, folder: Folder) -> AsyncIterator[Sender]:
    """Accept a socket; an error is sent to the page as a sentence."""
    await socket.accept()

    async def send(content: Any) -> None:
        await socket.send_text(msgspec.json.encode(content).decode())

    try:
        yield send
    except WebSocketDisconnect:
        return
    except (ValueError, OSError, ImportError, KeyError) as error:
        with contextlib.suppress(RuntimeError, WebSocketDisconnect):
            await send({"error": folder.explain(error)})
    with contextlib.suppress(RuntimeError, WebSocketDisconnect):
        await socket.close()


async def first_message(socket: WebSocket, kind: type[Message]) -> Message:
    """Return what a page asks for, if it does so in time."""
    try:
        text = await asyncio.wait_for(_receive_text(socket), FIRST_WORD)
    except asyncio.TimeoutError:
        raise ValueError("the page sent no request in time: reload it") from None
    return msgspec.json.decode(text, type=kind)


async def _receive_text(socket: WebSocket) -> str:
    try:
        return await socket.receive_text()
    except KeyError:
        raise ValueError("the page sent bytes, and only JSON text is read: reload it") from None


async def run(show: PlayerConnection | Watch, socket: WebSocket, send: Sender) -> None:
    """Step at the person's speed until it is over, and send what there is to see."""

    def step() -> tuple[bytes | None, dict[str, Any]]:
        show.tick()
        frame = show.picture()
        return None if frame is None else _jpeg(frame), show.report()

    clock = asyncio.get_running_loop().time
    due = clock()
    while not show.over:
        picture, report = step() if show.quick else await in_thread(step)
        if picture is not None:
            await socket.send_bytes(picture)
        await send(report)
        due = max(due + 1 / show.fps, clock() - LATE)
        await asyncio.sleep(max(due - clock(), 0))


async def in_thread(work: Callable[[], Any]) -> Any:
    """Run work in a thread; a canceled caller still waits for its end, so that nothing is stepped twice."""
    task = asyncio.create_task(asyncio.to_thread(work))
    canceled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            canceled = True
        except Exception:
            break
    if canceled:
        raise asyncio.CancelledError
    return task.result()


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait until it no longer does anything."""
    task.cancel()
    await asyncio.wait([task])


async def listen(socket: WebSocket, kind: Any, receive: Callable[[Any], None], stepping: asyncio.Task[None]) -> None:
    """Hand every message on until the page leaves or the stepping ends."""

    async def hand_on() -> None:
        while True:
            receive(msgspec.json.decode(await _receive_text(socket), type=kind))

    both = [asyncio.create_task(hand_on()), stepping]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in both:
            await end(task)
    for task in both:
        if not task.cancelled() and (error := task.exception()):
            raise error


def _jpeg(frame: Any) -> bytes:
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(frame).save(content, "JPEG", quality=85)
    return content.getvalue()
