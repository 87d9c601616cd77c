"""The reward that asks a server: what it sends, what it takes, and what becomes of a run."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch

import rlzoo
from rlzoo import RlzooError
from rlzoo_zoo.rewards import http as module
from rlzoo_zoo.rewards.http import http

pytestmark = pytest.mark.process  # a server


class Server:
    """An endpoint on this machine: keeps what it is sent, answers what `answer(body)` says."""

    def __init__(self):
        self.bodies, self.headers = [], []
        self.answer = lambda body: (200, {"scores": [float(len(r)) for r in body["responses"]]})
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.bodies.append(body)
                server.headers.append(dict(self.headers))
                status, found = server.answer(body)
                text = found if isinstance(found, bytes) else json.dumps(found).encode()
                self.send_response(status)
                if 300 <= status < 400:
                    self.send_header("Location", "/elsewhere")
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/score"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server():
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def ask(server, responses=("a", "bb", "ccc"), answers=("1", "2", "3"), **options):
    n = len(responses)
    tokens = [[*r, ""] for r in responses]
    width = max(map(len, tokens)) + 1
    mask = torch.tensor([[1.0] * len(t) + [0.0] * (width - len(t)) for t in tokens])
    given_options = {"url": server.url, "backoff": 0.0, "retries": 2, "timeout": 5.0, **options}
    prompts = [f"p{i}" for i in range(n)]
    return http(prompts, list(responses), tokens, list(answers), mask, **given_options)


def test_http_sends_what_is_declared_and_nothing_else(server):
    assert ask(server).tolist() == [1, 2, 3]
    assert server.bodies == [{"prompts": ["p0", "p1", "p2"], "responses": ["a", "bb", "ccc"]}]
    for fields in (["responses"], ["responses", "answers"], ["responses", "response_tokens"]):
        ask(server, send=fields)
        assert list(server.bodies[-1]) == fields
    allowed = {"Host", "Accept-Encoding", "User-Agent", "Connection", "Content-Type",
               "Content-Length"}  # fmt: skip
    assert set(server.headers[-1]) == allowed


def test_http_cuts_a_batch_into_requests(server):
    assert ask(server, batch=2).tolist() == [1, 2, 3]
    assert [len(body["responses"]) for body in server.bodies] == [2, 1]


def test_http_gives_scores_per_token(server, golden):
    def answer(body):
        return 200, {"scores": [[len(r) + 0.5] * len(r) for r in body["response_tokens"]]}

    server.answer = answer
    found = ask(server, ["a", "bb"], ["", ""], per_token=True, send=["response_tokens"])
    assert found.tolist() == [[2.5, 2.5, 0, 0], [3.5, 3.5, 3.5, 0]]
    server.answer = lambda body: (200, {"scores": [[1.0], [1.0]]})
    with golden.refuses(RlzooError):
        ask(server, ["a", "bb"], ["", ""], per_token=True, send=["response_tokens"])


def test_http_headers_come_from_the_environment_alone(server, monkeypatch, golden):
    monkeypatch.setenv("RLZOO_ALLOW_ENV", "SCORER")
    monkeypatch.setenv("SCORER", "Authorization: Bearer s3cret\nX-Team: a: b\n")
    ask(server, headers_from="SCORER")
    assert server.headers[-1]["Authorization"] == "Bearer s3cret"
    assert server.headers[-1]["X-Team"] == "a: b"
    monkeypatch.setenv("SCORER", "Authorization: x\nno colon s3cret")
    with golden.refuses(ValueError) as caught:
        ask(server, headers_from="SCORER")
    assert "s3cret" not in str(caught.error)
    monkeypatch.delenv("SCORER")
    with golden.refuses(RlzooError):
        ask(server, headers_from="SCORER")


@pytest.mark.parametrize("status", [408, 429, 500, 503])
def test_http_tries_again_where_that_may_help(server, status):
    replies = iter([(status, b""), (200, {"scores": [1, 2, 3]})])
    server.answer = lambda body: next(replies)
    assert ask(server).tolist() == [1, 2, 3]
    assert len(server.bodies) == 2


def test_http_waits_longer_each_time(server, monkeypatch, golden):
    waited = []
    monkeypatch.setattr(module, "pause", waited.append)
    server.answer = lambda body: (503, b"")
    with golden.refuses(RlzooError):
        ask(server, retries=3, backoff=0.5)
    assert waited == [0.5, 1.0, 2.0]


def test_http_that_is_slow_stops_or_scores_zero_as_declared(server, golden):
    def slow(body):
        threading.Event().wait(0.5)
        return 200, {"scores": [1.0] * len(body["responses"])}

    server.answer = slow
    with golden.refuses(RlzooError):
        ask(server, timeout=0.1, retries=1)
    with pytest.warns(UserWarning, match="3 responses score 0"):
        assert ask(server, timeout=0.1, retries=0, on_failure="zero").tolist() == [0, 0, 0]


def test_http_without_a_server_says_so(golden):
    place = type("Place", (), {"url": "http://127.0.0.1:1/score"})
    with golden.refuses(RlzooError):
        ask(place, retries=0)


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (404, b""),
        (302, b""),  # a redirect is not followed
        (200, b"<html>"),
        (200, b""),
        (200, b"\xff\xfe\x00"),
        (200, [1, 2, 3]),
        (200, {"score": [1, 2, 3]}),
        (200, {"scores": [1, 2]}),
        (200, {"scores": 1}),
        (200, {"scores": [1, "2", 3]}),
        (200, {"scores": [1, None, 3]}),
        (200, {"scores": [1, 2, True]}),
        (200, {"scores": [1, 2, [3]]}),
        (200, b'{"scores": [1, NaN, 3]}'),
        (200, b'{"scores": [1, 2, -Infinity]}'),
        (200, b'{"scores": [1, 2, 1' + b"0" * 400 + b"]}"),
    ],
)
@pytest.mark.parametrize("on_failure", ["stop", "zero"])
def test_http_refuses_garbage_at_once(server, status, answer, golden, on_failure):
    server.answer = lambda body: (status, answer)
    with golden.refuses(RlzooError):
        ask(server, on_failure=on_failure)
    assert len(server.bodies) == 1


def test_http_names_what_json_cannot_carry(server, golden):
    with golden.refuses(RlzooError):
        ask(server, answers=(b"1", "2", "3"), send=["answers", "responses"])


@pytest.mark.parametrize(
    "options",
    [
        {"url": ""},
        {"url": "file:///etc/passwd"},
        {"url": "localhost:80"},
        {"url": "http://me:word@localhost/"},
        {"send": ["prompt"]},
        {"send": []},
        {"per_token": True},
        {"headers_from": "NO_SUCH_VARIABLE"},
    ],
)
def test_http_options_are_refused_before_a_run(options, golden, zoo):
    component = zoo.rewards["http"]
    with golden.refuses((ValueError, RlzooError)):
        component.refuse(component.check_options({"url": "http://localhost/", **options}))


def test_a_run_whose_endpoint_dies_keeps_its_last_whole_step(server, words, tmp_path, golden):
    """Scores for a step, then none: the run stops, and goes on when the endpoint is back."""
    calls = iter(range(1000))
    good = server.answer

    def dies(body):
        return (503, b"") if next(calls) >= 3 else good(body)  # two of the evaluation, then a step

    server.answer = dies
    asked = ["rewards=http", f"rewards.http.url={server.url}", "rewards.http.retries=0",
             "checkpoint.every=10", f"run.dir={tmp_path}/run"]  # fmt: skip
    with golden.refuses(RlzooError):
        rlzoo.run("grpo", [*words, *asked])
    assert [p.name for p in (tmp_path / "run/checkpoints").iterdir()] == ["step-00000001"]
    server.answer = good
    from rlzoo.train.start import resume

    assert resume(tmp_path / "run").summary["steps"] == 3
