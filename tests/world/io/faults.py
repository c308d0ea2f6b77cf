"""A proxy before an S3 server, which fails as networks and servers do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Proxy(ThreadingHTTPServer):
    """Passes requests on. Of reads of objects it fails the next `times`, in one `way`."""

    daemon_threads = True

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = port
        self.way, self.times, self.failed = "", 0, 0
        self.reads: list[str] = []  # the ranges that were asked for
        self.signed: list[str] = []  # the signatures of requests

    def fail(self, way: str, times: int) -> None:
        self.way, self.times, self.failed = way, times, 0


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_GET(self) -> None:
        self.server.signed.append(self.headers.get("Authorization", ""))
        if "Range" in self.headers:
            self.server.reads.append(self.headers["Range"])
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        connection = HTTPConnection("127.0.0.1", self.server.target)
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if self.server.times and "Range" in self.headers:
            self.server.times -= 1
            self.server.failed += 1
            return self._fail(answer.status, dict(answer.headers), content)
        self._send(answer.status, dict(answer.headers), content)

    do_HEAD = do_PUT = do_POST = do_GET  # noqa: N815

    def _fail(self, status: int, headers: dict[str, str], content: bytes) -> None:
        if self.server.way == "busy":
            return self._send(503, {}, b"<Error><Code>SlowDown</Code></Error>")
        self._send(status, headers, content, sent=len(content) // 2)
        self.close_connection = True

    def _send(
        self, status: int, headers: dict[str, str], content: bytes, sent: int | None = None
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            if name.lower() not in ("content-length", "connection", "date", "server"):
                self.send_header(name, value)
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:sent])

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def proxy(port: int) -> Iterator[Proxy]:
    """A proxy before a port of this machine."""
    with Proxy(port) as found:
        thread = threading.Thread(target=found.serve_forever, daemon=True)
        thread.start()
        yield found
        found.shutdown()
        thread.join()
