"""Access to the studio: every request needs the token, a host name of this machine, and no other site's origin."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocket
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 10.0  # for the head of a request
MAX_CONNECTIONS = 160  # at once: with BACKLOG, fewer than the open files that macOS grants a process
BACKLOG = 32  # connections that are accepted before any of them is counted
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' blob:; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class Guard:
    """Middleware that refuses requests without the token, from other sites' pages, or to other host names.

    Another site could point a name of its own at this machine, so that its pages count as ours; a number cannot be
    pointed anywhere.
    """

    def __init__(self, app: ASGIApp, token: str, host: str) -> None:
        self.app, self.token = app, token
        own = socket.gethostname().lower()
        self.names = {"localhost", host.lower(), own, f"{own}.local"}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        connection = HTTPConnection(scope)
        given = connection.query_params.get("token", "")
        reason = self._refusal(connection, given)
        if scope["type"] == "websocket" and reason:
            await WebSocket(scope, receive, send).close(1008, reason[:120])
        elif reason:
            await PlainTextResponse(reason, 403, HEADERS)(scope, receive, send)
        elif scope["type"] == "http" and given and scope["path"] == "/":
            answer = RedirectResponse("/", 303, HEADERS)
            # Lax: the redirect of a link that was opened from another page would not carry a strict cookie.
            answer.set_cookie(_cookie(connection), self.token, httponly=True, samesite="lax")
            await answer(scope, receive, send)
        else:
            await self.app(scope, receive, _with_headers(send))

    def _refusal(self, connection: HTTPConnection, given: str) -> str:
        """Return why a request is refused, or nothing."""
        host, origin = connection.headers.get("host", ""), connection.headers.get("origin")
        name = _host_name(host)
        if name is None or not (name in self.names or _is_number(name)):
            return "This host name is not this machine's: open the printed link, or start the studio with --host NAME."
        if not any(
            secrets.compare_digest(each.encode(), self.token.encode())
            for each in (given, connection.cookies.get(_cookie(connection), ""))
        ):
            return "Open the link that pidm-nav studio printed: it holds the token that this page lacks."
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return f"A page of {origin[:100]} may not use this studio."
        return ""


def _cookie(connection: HTTPConnection) -> str:
    """Return the cookie's name; cookies are shared by all ports of a machine, so each port has its own."""
    return f"pidm-nav-{urlsplit('//' + connection.headers.get('host', '')).port or 80}"


def _host_name(host: str) -> str | None:
    """Return the name in a Host header, or None if there is none in it."""
    try:
        parts = urlsplit(f"//{host}")
        return parts.hostname if parts.port is not None or parts.netloc == host else None
    except ValueError:
        return None


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _with_headers(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            own = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
            message["headers"] = [*message["headers"], *own]
        await send(message)

    return send_with_headers


class ImpatientProtocol(H11Protocol):
    """Uvicorn's HTTP protocol, which would otherwise wait for any number of requests' heads forever."""

    _last: Any = ""  # the request at the last look

    def connection_made(self, transport: Any) -> None:
        """Begin to wait for a request, or close a connection that is too many."""
        super().connection_made(transport)
        if len(self.connections) > MAX_CONNECTIONS:
            transport.abort()
        else:
            self._look()

    def _look(self) -> None:
        """Close a connection that has completed no request since the last look."""
        if self.transport.is_closing() or self.transport.get_protocol() is not self:  # a websocket has taken it over
            return
        answered = self.cycle is None or self.cycle.response_complete
        if answered and self.cycle is self._last:
            self.transport.close()
            return
        self._last = self.cycle
        self.loop.call_later(HEAD_SECONDS, self._look)
