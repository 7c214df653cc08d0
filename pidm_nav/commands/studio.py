"""The command `studio`."""

from __future__ import annotations

import ipaddress
import os
import re
import secrets
import socket
import webbrowser
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from pidm_nav.console import say
from pidm_nav.files import writable_folder

PORTS = range(8400, 8420)


@dataclass(frozen=True)
class Studio:
    """Record, train and watch agents in a browser; the machine needs no display.

    Recordings and agents are files in --folder, for all other commands. Access needs the link's token: a random one, or
    that of the environment variable PIDM_NAV_TOKEN.

    Example: pidm-nav studio
    """

    folder: Path = Path()
    """Folder of recordings and agents."""
    port: int | None = None
    """Port to listen on. Default: the first free one from 8400."""
    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 admits other machines with the link."""
    browser: bool = True
    """Open the page in a browser."""

    def run(self) -> None:
        """Serve the studio until Ctrl-C."""
        try:
            from pidm_nav.studio.server import serve
        except ImportError:
            raise ImportError('the studio needs more packages: pip install "pidm-nav[studio]"') from None
        writable_folder(self.folder, "--folder")
        port = self._free_port()
        token = os.environ.get("PIDM_NAV_TOKEN") or secrets.token_urlsafe(24)
        local = _is_loopback(self.host)

        def ready(port: int) -> None:
            name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
            link = f"http://{f'[{name}]' if ':' in name else name}:{port}/?token={quote(token)}"
            say(f"The studio is running in {self.folder.resolve()}; Ctrl-C stops it.")
            say(f"  {link}", style="bold")
            if not local:
                say(
                    f"Anyone in your network with this link can record, train and read the recordings in this folder "
                    f"(host {self.host}). The connection is not encrypted.",
                    style="yellow",
                )
            if self.browser:
                webbrowser.open(link)

        serve(self.folder, self.host, port, token, ready)

    def _free_port(self) -> int:
        """Return the given port, or the first free one."""
        if self.port is not None and not 0 <= self.port < 65536:
            raise ValueError(f"--port is {self.port}: it must be between 0 and 65535")
        if not re.fullmatch(r"[\w.:%-]{1,253}", self.host):
            raise ValueError(f"--host is {self.host[:60]!r}: give an address such as 127.0.0.1, or a name")
        tried = PORTS if self.port is None else [self.port]
        for port in tried:
            with socket.socket(socket.AF_INET6 if ":" in self.host else socket.AF_INET) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self.host, port))
                    return port
                except OSError as error:
                    reason = error.strerror or str(error)
        raise OSError(f"cannot listen on {self.host}:{tried[0]} ({reason}): choose another --host or --port")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
