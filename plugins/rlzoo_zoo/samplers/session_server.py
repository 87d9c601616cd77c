"""The HTTP side of `sampler=sessions`: requests are checked here and wait here. Only the run's own
thread, in `sessions.py`, touches the model and the tokenizer."""

import hmac
import json
import math
import re
import secrets
import select
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from rlzoo_zoo.samplers.session_requests import Refused, completion, given, parsed, reward

BODY = 2**22  # bytes of a request
READ = 20.0  # seconds in which a request must arrive
HELD = 20.0  # seconds for which a request for a session waits until one is open
CONNECTIONS = 256  # that have shown the token; as many that have not
MODEL = {"id": "policy", "object": "model", "created": 0, "owned_by": "rlzoo"}
SESSION = re.compile(r"/v1/sessions/([\w-]{1,64})(/chat/completions|/reward)?")


class Session:
    """One row as an agent plays it: its tokens, and the last request with its reply. The prompt is
    the task's until the policy has replied to the first request, and then that request."""

    def __init__(self, row: int, prompt: list[int], about: dict[str, Any]):
        self.id, self.row, self.prompt, self.about = secrets.token_urlsafe(12), row, prompt, about
        self.ids: list[int] = []
        self.log_probs: list[float] = []
        self.turn_ids: list[int] = []  # 0: what the policy did not write
        self.turns: list[str] = []
        self.messages: list[dict[str, Any]] = []  # the last request's, and the reply
        self.said: list[dict[str, Any]] = []  # the same, with replies as the policy wrote them
        self.shown = ""  # the last request as text, up to the reply
        self.written = ""  # the reply as text that follows it
        self.last: tuple[Any, Any] = (None, None)
        self.busy = self.full = False
        self.reward: float | None = None
        self.done = False
        self.touched = time.monotonic()


class Job:
    """A request for a completion, which waits for the run's thread."""

    def __init__(self, session: Session, body: dict[str, Any]):
        self.session, self.body = session, body
        self.answer: dict[str, Any] | Refused | None = None
        self.ready = threading.Event()

    def finish(self, answer: "dict[str, Any] | Refused") -> None:
        self.answer, self.session.busy = answer, False
        self.session.touched = time.monotonic()
        self.ready.set()


class Desk:
    """Sessions and requests, under one lock. The run opens rows, takes jobs and closes; threads of
    the server hand out sessions, put jobs, and note rewards."""

    def __init__(self):
        self.change = threading.Condition()
        self.settings: dict[str, tuple[Any, ...]] = {}  # the values that sampling has
        self.free: list[Session] = []
        self.sessions: dict[str, Session] = {}
        self.jobs: list[Job] = []

    def open(self, sessions: list[Session], settings: dict[str, tuple[Any, ...]]) -> None:
        with self.change:
            self.free += sessions
            self.settings = settings
            self.change.notify_all()

    def take(self, seconds: float) -> list[Job]:
        """The jobs that wait; after `seconds` none."""
        with self.change:
            self.change.wait_for(lambda: self.jobs or self.finished(), seconds)
            jobs, self.jobs = self.jobs, []
            return jobs

    def finished(self) -> bool:
        return not self.free and all(s.done for s in self.sessions.values())

    def expire(self, idle: float, renew) -> None:
        """Replace sessions whose agent was silent for `idle` seconds."""
        with self.change:
            late = [s for s in self.sessions.values() if not s.done and not s.busy
                    and time.monotonic() - s.touched > idle]  # fmt: skip
            for session in late:
                del self.sessions[session.id]
                self.free.append(renew(session))
            if late:
                self.change.notify_all()

    def close(self) -> list[Session]:
        """End the round; its sessions."""
        with self.change:
            found, self.sessions, self.free = list(self.sessions.values()), {}, []
            jobs, self.jobs = self.jobs, []
        for job in jobs:
            job.finish(Refused(410, "the round has ended"))
        return found

    # ------------------------------------------------------------ for the server's threads

    def hand_out(self) -> Session:
        with self.change:
            self.change.wait_for(lambda: self.free, HELD)
            if not self.free:
                raise Refused(503, "no session is open because the run is updating", "overloaded")
            session = self.free.pop(0)
            session.touched = time.monotonic()
            self.sessions[session.id] = session
            return session

    def find(self, name: str) -> Session:
        if name not in self.sessions:
            raise Refused(
                410, "there is no such session: it has ended, or its agent was silent for too long"
            )
        return self.sessions[name]

    def complete(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        with self.change:
            session = self.find(name)
            if session.done:
                raise Refused(409, "the session already has its reward")
            if session.busy:
                raise Refused(409, "the session's last request has not been answered yet")
            if session.last[0] == body["messages"]:  # clients repeat what they think was lost
                return session.last[1]
            session.busy = True
            job = Job(session, body)
            self.jobs.append(job)
            self.change.notify_all()
        job.ready.wait()
        if isinstance(job.answer, Refused):
            raise job.answer
        assert job.answer is not None
        return job.answer

    def reward(self, name: str, value: float | None) -> None:
        with self.change:
            session = self.find(name)
            if session.done and session.reward == value:  # repeated, as its answer was lost
                return
            if session.done:
                raise Refused(409, "the session already has another reward")
            if session.busy or not (session.turns or session.full):
                raise Refused(409, "a reward must follow a turn of the policy")
            session.reward, session.done = value, True
            self.change.notify_all()

    def give_up(self, name: str) -> None:
        with self.change:
            session = self.find(name)
            if not session.busy and not session.done:
                session.touched = -math.inf


class Handler(BaseHTTPRequestHandler):
    """One request a connection. Each ends within its time, and with JSON."""

    server: "Server"
    timeout = READ
    server_version, sys_version = "rlzoo", ""
    default_request_version = "HTTP/1.0"  # so that rubbish gets a status too

    def handle_one_request(self) -> None:
        guard = threading.Timer(READ, cut, (self.connection,))  # `timeout` is for each packet only
        guard.daemon = True
        guard.start()
        self.guard = guard
        try:
            super().handle_one_request()
        except (OSError, ValueError):  # the client has gone, or was cut
            self.close_connection = True
        finally:
            guard.cancel()

    def _gone(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer faults of HTTP itself."""
        text = message or self.responses[code][0]
        self._send(code, {"error": {"message": text, "type": "invalid_request_error"}})

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the run's display has the terminal."""

    def _answer(self, work) -> None:
        status: int = 200
        try:
            self._admit()
            found = work()
        except Refused as error:
            status, found = error.status, {"error": {"message": error.text, "type": error.kind}}
        self._send(status, found)

    def _send(self, status: int, found: dict[str, Any]) -> None:
        text = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if status == 503:
            self.send_header("Retry-After", "1")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def _admit(self) -> None:
        given = self.headers.get("Authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
            raise Refused(401, "wrong or missing token", "authentication_error")
        if not self.server.let_in(self.connection):
            raise Refused(503, f"there are already {CONNECTIONS} requests", "overloaded")

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > 12:
            raise Refused(411, "Content-Length is missing")
        if int(length) > BODY:
            raise Refused(413, f"a request can have at most {BODY} bytes")
        text = self.rfile.read(int(length))
        if len(text) < int(length):
            raise Refused(400, "the request is incomplete")
        self.guard.cancel()
        try:
            found = parsed(text or b"{}")
        except ValueError as error:
            raise Refused(400, f"the request is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise Refused(400, "the request is not a JSON object")
        return found

    def _get(self) -> dict[str, Any]:
        if self.path != "/v1/models":
            raise Refused(404, "no such path")
        return {"object": "list", "data": [MODEL]}

    def _post(self) -> dict[str, Any]:
        desk, body = self.server.desk, self._body()
        if self.path == "/v1/sessions":
            given(body, ())
            session = desk.hand_out()
            if self._gone():  # an agent that was stopped while it waited
                desk.give_up(session.id)
            return {"id": session.id, "path": f"/v1/sessions/{session.id}", **session.about}
        if self.path == "/v1/chat/completions":  # of a client that has one address
            return desk.complete(str(body.get("model")), completion(body, desk.settings))
        match = SESSION.fullmatch(self.path)
        if match and match[2] == "/chat/completions":
            return desk.complete(match[1], completion(body, desk.settings))
        if match and match[2] == "/reward":
            desk.reward(match[1], reward(body))
            return {"id": match[1], "done": True}
        raise Refused(404, "no such path")

    def _delete(self) -> dict[str, Any]:
        match = SESSION.fullmatch(self.path)
        if not match or match[2]:
            raise Refused(404, "no such path")
        self.server.desk.give_up(match[1])
        return {"id": match[1], "deleted": True}


class Server(ThreadingHTTPServer):
    """Listens in threads of its own; at most `CONNECTIONS` at a time with the token, and as many
    without."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, token: str):
        self.token, self.desk = token, Desk()
        self.lock = threading.Lock()
        self.unknown: dict[socket.socket, None] = {}  # connections that have not shown the token
        self.known: set[socket.socket] = set()
        super().__init__((host, port), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def let_in(self, connection: socket.socket) -> bool:
        """Note that a connection has shown the token; whether there is room for it."""
        with self.lock:
            self.unknown.pop(connection, None)
            if len(self.known) < CONNECTIONS:
                self.known.add(connection)
        return connection in self.known

    def process_request(self, request, address) -> None:
        with self.lock:
            if len(self.unknown) >= CONNECTIONS:  # the oldest makes room: it may never show one
                oldest = next(iter(self.unknown))
                del self.unknown[oldest]
                cut(oldest)
            self.unknown[request] = None
        super().process_request(request, address)

    def process_request_thread(self, request, address) -> None:
        try:
            super().process_request_thread(request, address)
        finally:
            with self.lock:
                self.unknown.pop(request, None)
                self.known.discard(request)

    def handle_error(self, request, address) -> None:
        """Nothing: a client's fault ends its connection only."""


def cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
