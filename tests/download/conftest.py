"""A local server that delivers files as badly as real servers do."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fedwca.download import fetch_file

Answer = Callable[["Handler", "Served"], None]


@dataclass
class Served:
    """The file at a path, and the requests for it."""

    content: bytes
    etag: str | None = '"first"'
    ranges: bool = True
    misbehave: list[Answer] = field(default_factory=list)
    """Answers to the next requests, one each, in place of the normal answer."""
    asked: list[str] = field(default_factory=list)
    """The range of each request."""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        files: dict[str, Served] = self.server.files  # type: ignore[attr-defined]
        served = files.get(self.path.partition("?")[0])
        if served is None:
            self.send_error(404)
            return
        served.asked.append(self.headers.get("Range", ""))
        (served.misbehave.pop(0) if served.misbehave else give)(self, served)


def give(handler: Handler, served: Served, stop: int | None = None) -> None:
    """Send the file, or the requested range of it; ``stop``: close the connection after so many bytes."""
    start, requested_range = 0, handler.headers.get("Range", "")
    unchanged = handler.headers.get("If-Range") in (None, served.etag)
    if requested_range and served.ranges and unchanged:
        start = int(requested_range.removeprefix("bytes=").rstrip("-"))
        if start >= len(served.content):
            handler.send_error(416)
            return
    body = served.content[start:]
    handler.send_response(206 if start else 200)
    if start:
        handler.send_header("Content-Range", f"bytes {start}-{len(served.content) - 1}/{len(served.content)}")
    if served.etag:
        handler.send_header("ETag", served.etag)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body[:stop])
    if stop is not None:
        handler.close_connection = True


def break_off(after: int) -> Answer:
    return lambda handler, served: give(handler, served, after)


def refuse(code: int) -> Answer:
    return lambda handler, served: handler.send_error(code)


def redirect(to: str, code: int = 302) -> Answer:
    def answer(handler: Handler, served: Served) -> None:
        handler.send_response(code)
        handler.send_header("Location", to)
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    return answer


def hang(seconds: float) -> Answer:
    """Send headers, and then nothing."""

    def answer(handler: Handler, served: Served) -> None:
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(served.content)))
        handler.end_headers()
        handler.server.over.wait(seconds)  # type: ignore[attr-defined]
        handler.close_connection = True

    return answer


def chunks(handler: Handler, served: Served) -> None:
    """Send all of the file without its length."""
    handler.send_response(200)
    handler.send_header("Transfer-Encoding", "chunked")
    handler.end_headers()
    handler.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(served.content), served.content))


@dataclass
class LocalServer:
    address: str
    files: dict[str, Served]

    def add(self, path: str, content: bytes, *misbehave: Answer, **fields: Any) -> str:
        """Put a file on the server; return its address."""
        self.files[path] = Served(content, misbehave=list(misbehave), **fields)
        return self.address + path


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalServer]:
    monkeypatch.setattr(fetch_file, "FIRST_PAUSE", 0.001)
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    httpd.files, httpd.over = {}, threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield LocalServer(f"http://127.0.0.1:{httpd.server_port}", httpd.files)  # type: ignore[attr-defined]
    httpd.over.set()  # type: ignore[attr-defined]
    httpd.shutdown()
    httpd.server_close()
    thread.join()


def md5(content: bytes) -> str:
    return hashlib.md5(content, usedforsecurity=False).hexdigest()
