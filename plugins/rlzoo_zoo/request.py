"""HTTP requests with one time limit, and the servers that rewards and samplers post JSON to."""

import json
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from http.client import HTTPException, IncompleteRead
from typing import Any, NamedTuple

from rlzoo import RlzooError, secret

MOST = 2**26  # bytes of an answer


class Answer(NamedTuple):
    """An HTTP answer of any status."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def request(
    url: str,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    *,
    seconds: float,
    most: int,
) -> Answer:
    """The answer to a GET, or to a POST of `body`; at most `most` + 1 bytes.

    seconds: for connecting, sending, header and body together; a server that sends single bytes
    cannot prolong them. A redirect is an answer like others. Raises OSError, of which a
    TimeoutError after `seconds`, or HTTPException.
    """
    sent = urllib.request.Request(url, body, dict(headers or {}))
    found: Future[Answer] = Future()
    late = threading.Event()

    def ask() -> None:
        try:
            found.set_result(_answer(sent, seconds, most, late))
        except Exception as error:  # whatever it is, it is the caller's
            found.set_exception(error)

    # In a thread, for urllib's own timeout is for each packet.
    threading.Thread(target=ask, daemon=True).start()
    try:
        return found.result(seconds)
    except TimeoutError:
        raise TimeoutError("timed out") from None
    finally:
        late.set()


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


def _answer(
    sent: urllib.request.Request, seconds: float, most: int, late: threading.Event
) -> Answer:
    try:
        answer = urllib.request.build_opener(_NoRedirect()).open(sent, timeout=seconds + 1)
    except urllib.error.HTTPError as error:  # which is an answer too
        answer = error
    parts, size = [], 0
    with answer:
        while size <= most and not late.is_set() and (part := answer.read1(2**16)):
            parts.append(part)
            size += len(part)
        told = answer.headers.get("Content-Length", "")
        if told.isdecimal() and size < min(int(told), most):
            raise IncompleteRead(b"", int(told) - size)
        return Answer(answer.status, answer.headers, b"".join(parts))


# ---------------------------------------------------------------- servers of JSON


class Later(Exception):
    """To be sent again after `seconds` at least. full: the server is up, and has no room."""

    def __init__(self, reason: str, seconds: float = 0.0, full: bool = False):
        super().__init__(reason)
        self.seconds, self.full = seconds, full


class Endpoint:
    """A server that answers JSON with JSON. fault: the error of an invalid answer."""

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        timeout: float,
        fault: Callable[[str], Exception],
    ):
        parts = urllib.parse.urlsplit(url)
        self.place = f"{parts.scheme}://{parts.netloc}"  # a path may hold a secret
        self.url, self.timeout, self.fault = url, timeout, fault
        self.headers = {"Content-Type": "application/json", **headers}

    def ask(self, path: str = "", body: bytes | None = None, hint: str = "") -> Any:
        """The answer's JSON to a POST of `body`, or to a GET; None where it is empty. Raises Later
        where another attempt may help, else `fault`; hint: what to do about another status."""
        try:
            answer = request(self.url + path, body, self.headers, seconds=self.timeout, most=MOST)
        except TimeoutError:
            raise Later(f"no answer within {self.timeout:g} s") from None
        except (OSError, HTTPException) as error:  # refused, reset, cut short, no such host
            said = " ".join(str(getattr(error, "reason", error)).split()).rstrip(".")
            raise Later(said or type(error).__name__) from None
        status, text = answer.status, answer.body
        if len(text) > MOST:
            raise self.fault(f"{self.place} sent more than {MOST // 2**20} MiB")
        if status in (408, 429) or status >= 500:
            told = answer.headers.get("Retry-After", "")
            seconds = float(told) if told.isdecimal() else 0.0
            raise Later(f"status {status}{_detail(text)}", seconds, status == 429)
        if not 200 <= status < 300:
            where = f" {path}" if path else ""
            raise self.fault(
                f"{self.place} answered{where} with status {status}{_detail(text)}{hint}"
            )
        try:
            return json.loads(text) if text.strip() else None
        except (ValueError, RecursionError):
            where = f" to {path}" if path else ""
            raise self.fault(f"{self.place} did not return JSON{where}: {text[:60]!r}") from None


def _detail(text: bytes) -> str:
    """A server's message, without the status, on one line."""
    try:
        found = json.loads(text)
        found = found.get("error", found)
        said = found["message"] if "message" in found else found["detail"]
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return ""
    return f": {' '.join(str(said).split())[:300]}"


def check_url(url: str) -> None:
    place = urllib.parse.urlsplit(url)
    if not url:
        raise RlzooError("url is missing")
    if place.scheme not in ("http", "https") or not place.hostname:
        raise ValueError(f"url must begin with http:// or https:// and name a host. Got {url!r}")
    if place.username or place.password:
        raise ValueError("url: secrets do not belong in a recipe; use headers_from")


def headers(variable: str) -> dict[str, str]:
    """The headers in an environment variable; what is wrong is named without its value."""
    if not variable:
        return {}
    try:
        text = secret(variable)
    except RlzooError as error:
        raise RlzooError(f"headers_from: {variable}: {error}") from None
    found = {}
    for number, line in enumerate(text.splitlines(), 1):
        name, colon, value = line.partition(":")
        if line.strip():
            if not colon or not name.strip():
                raise ValueError(
                    f"headers_from: line {number} of {variable!r} is not of the form 'Name: value'"
                )
            found[name.strip()] = value.strip()
    return found
