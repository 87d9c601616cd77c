"""The HTTP side of `sampler=sessions`: requests are checked here and wait here, by starlette and
uvicorn. Only the run's own thread, in `sessions.py`, touches the model and the tokenizer."""

import asyncio
import hmac
import math
import secrets
import socket
import threading
import time
from concurrent.futures import Future
from typing import Any

from rlzoo_zoo.samplers.session_requests import Refused, completion, given, parsed, reward

BODY = 2**22  # bytes of a request
READ = 20.0  # seconds in which a request must arrive
HELD = 20.0  # seconds for which a request for a session waits until one is open
LOOK = 0.02  # seconds between looks whether one is
CONNECTIONS = 256  # with a request; as many without one yet
ROUTES = "POST /v1/sessions gives a path; POST its /chat/completions and its /reward"
MODEL = {"id": "policy", "object": "model", "created": 0, "owned_by": "rlzoo"}


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
        self.job: Job | None = None  # its latest
        self.reward: float | None = None
        self.done = False
        self.touched = time.monotonic()


class Job:
    """A request for a completion, which waits for the run's thread."""

    def __init__(self, session: Session, body: dict[str, Any]):
        self.session, self.body = session, body
        self.answer: Future[dict[str, Any]] = Future()
        self.answer.set_running_or_notify_cancel()  # a client that leaves does not cancel it

    def finish(self, answer: "dict[str, Any] | Refused") -> None:
        self.session.busy = False
        self.session.touched = time.monotonic()
        if isinstance(answer, Refused):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class Desk:
    """Sessions and requests, under one lock. The run opens rows, takes jobs and closes; the
    server's thread hands out sessions, puts jobs, and notes rewards."""

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

    # ------------------------------------------------------------ for the server's thread

    def hand_out(self) -> Session | None:
        with self.change:
            if not self.free:
                return None
            session = self.free.pop(0)
            session.touched = time.monotonic()
            self.sessions[session.id] = session
            return session

    def find(self, name: str) -> Session:
        if name not in self.sessions:
            line = f"there is no session {name[:40]!r}; it has ended, or was silent for too long; "
            raise Refused(410, f"{line}POST /v1/sessions gives an id, which `model` may be")
        return self.sessions[name]

    def complete(self, name: str, body: dict[str, Any]) -> "Future[dict[str, Any]]":
        with self.change:
            session = self.find(name)
            if session.done:
                raise Refused(409, "the session already has its reward")
            if session.busy and session.job and session.job.body["messages"] == body["messages"]:
                return session.job.answer  # a client repeats what it no longer waits for
            if session.busy:
                raise Refused(409, "the session's last request has not been answered yet")
            job = Job(session, body)
            if session.last[0] == body["messages"]:  # clients repeat what they think was lost
                job.finish(session.last[1])
                return job.answer
            session.busy, session.job = True, job
            self.jobs.append(job)
            self.change.notify_all()
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

    def give_up(self, name: str) -> bool:
        """Whether a session is given up: not one with its reward, or with a request."""
        with self.change:
            session = self.find(name)
            if left := not session.busy and not session.done:
                session.touched = -math.inf
            return left


class Server:
    """Listens in a thread of its own, and answers every request that it can read with JSON."""

    def __init__(self, host: str, port: int, token: str):
        import uvicorn
        from starlette.applications import Starlette
        from starlette.exceptions import HTTPException
        from starlette.routing import Route
        from uvicorn.protocols.http.h11_impl import H11Protocol

        class Impatient(H11Protocol):
            """Cuts a connection whose request does not come in time; where too many wait for
            theirs, the oldest of these."""

            def connection_made(self, transport: Any) -> None:
                super().connection_made(transport)
                self.made = self.loop.time()
                self.loop.call_later(READ, self.cut)
                every: Any = self.connections
                waiting = [c for c in every if c.cycle is None and not c.transport.is_closing()]
                if len(waiting) > CONNECTIONS:
                    min(waiting, key=lambda c: c.made).cut()

            def cut(self) -> None:
                if self.cycle is None:
                    self.transport.abort()

        self.token, self.desk = token, Desk()
        routes = [
            Route("/v1/models", self.endpoint(self.models)),
            Route("/v1/sessions", self.endpoint(self.begin), methods=["POST"]),
            Route("/v1/sessions/{name}", self.endpoint(self.give_up), methods=["DELETE"]),
            Route("/v1/sessions/{name}/reward", self.endpoint(self.reward), methods=["POST"]),
            Route("/v1/sessions/{name}/chat/completions", self.endpoint(self.complete),
                  methods=["POST"]),
            Route("/v1/chat/completions", self.endpoint(self.complete), methods=["POST"]),
        ]  # fmt: skip
        faults: Any = {Refused: refusal, HTTPException: refusal}
        config = uvicorn.Config(
            Starlette(routes=routes, exception_handlers=faults), http=Impatient, ws="none",
            loop="asyncio", lifespan="off", log_config=None, log_level="critical",
            server_header=False, headers=[("Connection", "close")], timeout_graceful_shutdown=1,
        )  # fmt: skip
        listening = socket.create_server((host, port), backlog=128)
        self.port = listening.getsockname()[1]
        self.http = uvicorn.Server(config)
        run = {"sockets": [listening]}
        self.thread = threading.Thread(target=self.http.run, kwargs=run, daemon=True)
        self.thread.start()

    def stop(self) -> None:
        self.http.should_exit = True
        self.thread.join()

    def endpoint(self, work: Any) -> Any:
        """`work(request, body)` with the token checked and the body read."""
        from starlette.responses import JSONResponse

        async def answered(request: Any) -> Any:
            given = request.headers.get("Authorization", "").encode("utf-8", "replace")
            if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
                raise Refused(401, "wrong or missing token", "authentication_error")
            if len(self.http.server_state.tasks) > CONNECTIONS:
                raise Refused(503, f"there are already {CONNECTIONS} requests", "overloaded")
            body = await body_of(request) if request.method == "POST" else {}
            return JSONResponse(await work(request, body))

        return answered

    async def models(self, request: Any, body: dict[str, Any]) -> dict[str, Any]:
        return {"object": "list", "data": [MODEL]}

    async def begin(self, request: Any, body: dict[str, Any]) -> dict[str, Any]:
        given(body, ())
        end = time.monotonic() + HELD
        while (session := self.desk.hand_out()) is None:
            await asyncio.sleep(LOOK)
            if time.monotonic() > end or await request.is_disconnected():
                raise Refused(503, "no session is open because the run is updating", "overloaded")
        return {"id": session.id, "path": f"/v1/sessions/{session.id}", **session.about}

    async def complete(self, request: Any, body: dict[str, Any]) -> dict[str, Any]:
        # A client that has one address names the session as its model.
        name = request.path_params.get("name") or str(body.get("model"))
        asked = completion(body, self.desk.settings)
        return await asyncio.wrap_future(self.desk.complete(name, asked))

    async def reward(self, request: Any, body: dict[str, Any]) -> dict[str, Any]:
        name = request.path_params["name"]
        self.desk.reward(name, reward(body))
        return {"id": name, "done": True}

    async def give_up(self, request: Any, body: dict[str, Any]) -> dict[str, Any]:
        name = request.path_params["name"]
        return {"id": name, "deleted": self.desk.give_up(name)}


async def body_of(request: Any) -> dict[str, Any]:
    """The JSON object of a request; raises Refused."""
    from starlette.requests import ClientDisconnect

    text = bytearray()
    try:
        async with asyncio.timeout(READ):
            async for part in request.stream():
                text += part
                if len(text) > BODY:
                    raise Refused(413, f"a request can have at most {BODY} bytes")
        found = parsed(bytes(text) or b"{}")
    except (TimeoutError, ClientDisconnect):
        raise Refused(408, "the request is incomplete") from None
    except ValueError as error:
        raise Refused(400, f"the request is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused(400, "the request is not a JSON object")
    return found


async def refusal(request: Any, error: Any) -> Any:
    """The answer to a request that is refused, here or by starlette."""
    from starlette.responses import JSONResponse

    kind, text = getattr(error, "kind", "invalid_request_error"), error.detail
    if not isinstance(error, Refused):
        text = f"{text}: {request.method} {request.url.path[:80]}; {ROUTES}"
    more = {"Retry-After": "1"} if error.status_code == 503 else error.headers
    return JSONResponse({"error": {"message": text, "type": kind}}, error.status_code, more)
