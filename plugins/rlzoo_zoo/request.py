"""HTTP requests with one time limit."""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """An HTTP answer of any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class NoRedirect(urllib.request.HTTPRedirectHandler):
    """A redirect is an answer like others."""

    def redirect_request(self, *_: Any) -> None:
        return None


def request(
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    seconds: float,
    most: int,
    redirects: urllib.request.HTTPRedirectHandler | None = None,
) -> Answer:
    """The answer to a GET, or to a POST of `body`; at most `most` + 1 bytes.

    seconds: for connecting, sending, header and body together; a server that sends single bytes
    cannot prolong them. redirects: which to follow; none by default. Raises OSError, of which
    a TimeoutError after `seconds`, or HTTPException.
    """
    limit = _Limit()
    timer = threading.Timer(seconds, limit.cut)
    timer.daemon = True
    opener = urllib.request.build_opener(
        _Plain(limit), _Secure(limit), redirects or NoRedirect()
    )  # urllib's own timeout is for each packet
    timer.start()
    try:
        with _opened(opener, url, body, headers, seconds) as answer:
            found = Answer(answer.status, answer.headers, _read(answer, most))
    except (OSError, HTTPException):
        if not limit.late:
            raise
    finally:
        timer.cancel()
        limit.close()
    if limit.late:
        raise TimeoutError("timed out")
    return found


def _opened(
    opener: Any, url: str, body: bytes | None, headers: Mapping[str, str] | None, seconds: float
) -> Any:
    try:
        return opener.open(urllib.request.Request(url, body, dict(headers or {})), timeout=seconds)
    except urllib.error.HTTPError as error:  # which is an answer too
        return error


def _read(answer: Any, most: int) -> bytes:
    parts, size = [], 0
    while size <= most and (part := answer.read1(2**16)):
        parts.append(part)
        size += len(part)
    told = answer.headers.get("Content-Length", "")
    if told.isdecimal() and size < min(int(told), most):
        raise IncompleteRead(b"", int(told) - size)
    return b"".join(parts)


class _Limit:
    """Shuts the connections of a request at its deadline, whatever they wait for."""

    def __init__(self) -> None:
        self.late = False
        self.lock = threading.Lock()
        self.sockets: list[socket.socket] = []

    def connect(self, *where: Any) -> socket.socket:
        found = socket.create_connection(*where)
        with self.lock:
            # TLS takes the socket's descriptor over: a copy of it reaches the same connection.
            self.sockets.append(found.dup())
        if self.late:
            self.cut()
        return found

    def cut(self) -> None:
        with self.lock:
            self.late = True
            for one in self.sockets:
                with suppress(OSError):  # it has ended by itself
                    one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with self.lock:
            for one in self.sockets:
                one.close()
            self.sockets.clear()


def _connection(kind: Any, limit: _Limit, *where: Any, **how: Any) -> HTTPConnection:
    found: HTTPConnection = kind(*where, **how)
    found._create_connection = limit.connect  # type: ignore[attr-defined]
    return found


class _Plain(urllib.request.HTTPHandler):
    def __init__(self, limit: _Limit) -> None:
        super().__init__()
        self.kind: Any = partial(_connection, HTTPConnection, limit)

    def http_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(self.kind, req)


class _Secure(urllib.request.HTTPSHandler):
    def __init__(self, limit: _Limit) -> None:
        super().__init__()
        self.kind: Any = partial(_connection, HTTPSConnection, limit)

    def https_open(self, req: urllib.request.Request) -> Any:
        return self.do_open(self.kind, req)
