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
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

BODY = 2**22  # bytes of a request
MESSAGES = 2000  # of a request
READ = 20.0  # seconds in which a request must arrive
HELD = 20.0  # seconds for which a request for a session waits until one is open
CONNECTIONS = 256
MODEL = {"id": "policy", "object": "model", "created": 0, "owned_by": "rlzoo"}
SESSION = re.compile(r"/v1/sessions/([\w-]{1,64})(/chat/completions|/reward)?")


class Refused(Exception):
    """A request that gets a status and a line."""

    def __init__(self, status: int, text: str, kind: str = "invalid_request_error"):
        super().__init__(text)
        self.status, self.text, self.kind = status, text, kind


class Session:
    """One row as an agent plays it: its tokens, and the last request with its reply."""

    def __init__(self, row: int, prompt: list[int], about: dict[str, Any]):
        self.id, self.row, self.prompt, self.about = secrets.token_urlsafe(12), row, prompt, about
        self.ids: list[int] = []
        self.log_probs: list[float] = []
        self.turn_ids: list[int] = []  # 0: what the policy did not write
        self.turns: list[str] = []
        self.messages: list[dict[str, Any]] = []  # the last request's, and the reply
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
        self.free: list[Session] = []
        self.sessions: dict[str, Session] = {}
        self.jobs: list[Job] = []

    def open(self, sessions: list[Session]) -> None:
        with self.change:
            self.free += sessions
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
            if session.busy or not any(session.turn_ids):
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

    def handle_one_request(self) -> None:
        guard = threading.Timer(READ, self._cut)  # `timeout` is for each packet only
        guard.daemon = True
        guard.start()
        self.guard = guard
        try:
            super().handle_one_request()
        except (OSError, ValueError):  # the client has gone, or was cut
            self.close_connection = True
        finally:
            guard.cancel()

    def _cut(self) -> None:
        try:
            self.connection.shutdown(2)
        except OSError:
            return

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

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the run's display has the terminal."""

    def _answer(self, work) -> None:
        status: int = 200
        try:
            self._admit()
            found = work()
        except Refused as error:
            status, found = error.status, {"error": {"message": error.text, "type": error.kind}}
        text = json.dumps(found).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if status == 503:
            self.send_header("Retry-After", "1")
        self.end_headers()
        self.wfile.write(text)

    def _admit(self) -> None:
        given = self.headers.get("Authorization", "").encode("utf-8", "replace")
        if not hmac.compare_digest(given, f"Bearer {self.server.token}".encode()):
            raise Refused(401, "wrong or missing token", "authentication_error")

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
            found = json.loads(text or b"{}")
            json.dumps(found, ensure_ascii=False).encode()  # a lone surrogate is not a text
        except (ValueError, RecursionError):
            raise Refused(400, "the request is not JSON of Unicode texts") from None
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
            session = desk.hand_out()
            if self._gone():  # an agent that was stopped while it waited
                desk.give_up(session.id)
            return {"id": session.id, "path": f"/v1/sessions/{session.id}", **session.about}
        if self.path == "/v1/chat/completions":  # of a client that has one address
            return desk.complete(str(body.get("model")), completion(body))
        match = SESSION.fullmatch(self.path)
        if match and match[2] == "/chat/completions":
            return desk.complete(match[1], completion(body))
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


def completion(body: dict[str, Any]) -> dict[str, Any]:
    """The parts of a request for a completion that count; raises Refused."""
    messages, most = body.get("messages"), body.get("max_completion_tokens", body.get("max_tokens"))
    if not isinstance(messages, list) or not 0 < len(messages) <= MESSAGES:
        raise Refused(400, f"messages must be a list of 1 to {MESSAGES}")
    for name, harmless in (("stream", (None, False)), ("n", (None, 1)), ("stop", (None, [], ""))):
        if body.get(name) not in harmless:
            raise Refused(400, f"{name} is not supported")
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise Refused(400, "max_tokens must be an integer of at least 1")
    tools = body.get("tools")
    if tools is not None and not isinstance(tools, list):
        raise Refused(400, "tools must be a list")
    return {"messages": [message(m) for m in messages], "most": most, "tools": tools or None}


def message(given: Any) -> dict[str, Any]:
    """A message as role, text and, of an assistant, calls of tools; raises Refused."""
    if not isinstance(given, dict) or not isinstance(given.get("role"), str):
        raise Refused(400, "a message must have a role and a content")
    content = given.get("content")
    calls: list[Any] = []
    if given["role"] == "assistant":
        calls = given.get("tool_calls") or []
        if not isinstance(calls, list):
            raise Refused(400, "tool_calls must be a list")
        content, calls = content or "", [tool_call(c) for c in calls]
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else None for part in content]
        content = "".join(map(str, texts)) if all(isinstance(t, str) for t in texts) else None
    if not isinstance(content, str):
        raise Refused(400, "the content of a message must be a string")
    return {"role": given["role"], "content": content} | ({"tool_calls": calls} if calls else {})


def tool_call(given: Any) -> dict[str, Any]:
    """A call as chat templates take it, with arguments as an object; raises Refused."""
    try:
        name, arguments = given["function"]["name"], given["function"]["arguments"]
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (LookupError, TypeError, ValueError, RecursionError):
        name = arguments = None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise Refused(400, "a tool call must have a function with a name, and JSON arguments")
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def reward(body: dict[str, Any]) -> float | None:
    value = body.get("reward")
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
        raise Refused(400, "reward must be a finite number")
    return float(value)


class Server(ThreadingHTTPServer):
    """Listens in threads of its own; at most `CONNECTIONS` at a time."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, token: str):
        self.token, self.desk = token, Desk()
        self.room = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__((host, port), Handler)
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def process_request(self, request, address) -> None:
        if not self.room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, address)

    def process_request_thread(self, request, address) -> None:
        try:
            super().process_request_thread(request, address)
        finally:
            self.room.release()

    def handle_error(self, request, address) -> None:
        """Nothing: a client's fault ends its connection only."""
