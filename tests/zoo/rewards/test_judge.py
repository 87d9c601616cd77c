"""The reward `judge`: what it sends, which replies it takes, its cache, and its failures."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rlzoo import RlzooError
from rlzoo_zoo.rewards.judge import CACHE, check, judge

pytestmark = pytest.mark.process  # a server


class Server:
    """An endpoint on this machine that grades by the length of the response."""

    def __init__(self):
        self.bodies, self.now, self.most = [], 0, 0
        self.reply = lambda row: json.dumps({"score": len(row["response"])})
        self.status, lock = 200, threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    server.bodies.append((self.path, body))
                    server.now += 1
                    server.most = max(server.most, server.now)
                text = server.reply(json.loads(body["messages"][1]["content"]))
                self.send_response(server.status)
                self.end_headers()
                self.wfile.write(json.dumps({"choices": [{"message": {"content": text}}]}).encode())
                with lock:
                    server.now -= 1

            def log_message(self, *_):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()


@pytest.fixture
def server():
    CACHE.clear()
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


def ask(server, responses=("a", "bbbbb", "a"), **options):
    n = len(responses)
    given = {"url": server.url, "model": "grader", "backoff": 0.0, "timeout": 5.0, **options}
    return judge(["task"] * n, list(responses), ["42"] * n, **given)


def test_equal_rows_are_sent_once_and_scores_are_scaled(server):
    assert ask(server).tolist() == pytest.approx([0.1, 0.5, 0.1])
    assert len(server.bodies) == 2
    path, body = server.bodies[0]
    assert path == "/v1/chat/completions"
    assert body["model"] == "grader"
    assert body["temperature"] == 0
    row = json.loads(body["messages"][1]["content"])
    assert row["task"] == "task"
    assert row["reference"] == "42"
    assert ask(server, low=1.0, high=5.0).tolist() == [0, 1, 0]


def test_the_reference_is_shown_only_if_wanted(server):
    ask(server, ["x"], reference=False)
    assert "reference" not in json.loads(server.bodies[0][1]["messages"][1]["content"])


def test_scores_are_kept_and_no_more_than_the_cache_holds(server):
    ask(server, ["a", "bb", "ccc"], cache=2)
    assert len(CACHE) == 2
    ask(server, ["ccc", "bb"], cache=2)
    assert len(server.bodies) == 3
    ask(server, ["a"], cache=2)
    assert len(server.bodies) == 4


def test_another_rubric_or_judge_is_asked_again(server):
    ask(server, ["a"])
    ask(server, ["a"], rubric="Be strict.")
    ask(server, ["a"], model="other")
    assert len(server.bodies) == 3


def test_requests_under_way_are_bounded(server):
    ask(server, [str(i) for i in range(12)], requests=2)
    assert len(server.bodies) == 12
    assert server.most <= 2


def test_the_last_object_with_a_score_counts(server):
    server.reply = lambda row: 'Say {"score": 1}? No: {"why": 3} {"score": 7.5} {"score": "x"}'
    assert ask(server, ["a"]).tolist() == [0.75]
    CACHE.clear()
    server.reply = lambda row: '{"score": 99}'
    assert ask(server, ["a"]).tolist() == [1]


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        (r'{"score": 7, "why": "the step with \\frac{1}{2} is right"}', 0.7),
        (r'{"score": 7, "why": "\sqrt{2} and \cos{x}"}', 0.7),  # not escaped
        ('{"why": "a } and a {", "score": 7}', 0.7),
        ('```json\n{"score": 7,\n "why": "line\nbreak"}\n```\nDone {}.', 0.7),
        ('For x in {1, 2}: {"score": 7}', 0.7),
        ('{"result": {"parts": [1], "score": 7}}', 0.7),
        ('{"score": 7, "parts": [{"score": 2}]}', 0.7),
        ('{"score": 2} {"score": 7} {"score": true} {"score": NaN}', 0.7),
        ('{"why": "{\\"score\\": 2}", "score": 7}', 0.7),
        ('{"score": 1e999}', 1), ('{"score": -1' + "0" * 400 + "}", 0),
        ('{"parts": [{"score": 2}], "why": "cut o', None), ('{"a":' * 5000, None),
        ('{"score": "7"}', None), ("{" * 5000 + '{"score": 7}', None),
    ],
)  # fmt: skip
def test_a_score_among_braces(server, reply, score, golden):
    server.reply = lambda row: reply
    if score is not None:
        assert ask(server, ["a"]).tolist() == [pytest.approx(score)]
    else:
        with golden.refuses(RlzooError):
            ask(server, ["a"])


def test_a_reply_without_a_score_stops_the_run_or_scores_0(server, golden):
    server.reply = lambda row: "It is fine." if row["response"] == "bad" else '{"score": 10}'
    with golden.refuses(RlzooError):
        ask(server, ["good", "bad"])
    CACHE.clear()
    with pytest.warns(UserWarning, match="1 responses"):
        found = ask(server, ["good", "bad"], on_failure="zero")
    assert found.tolist() == [1, 0]
    assert len(CACHE) == 1  # a failure is not kept


def test_a_server_that_does_not_answer_is_tried_again(server, golden):
    server.status = 503
    with golden.refuses(RlzooError):
        ask(server, ["a"], retries=2)
    assert len(server.bodies) == 3
    server.status = 404
    with golden.refuses(RlzooError):
        ask(server, ["b"], retries=2)
    assert len(server.bodies) == 4


@pytest.mark.parametrize(
    "options",
    [{"url": ""}, {"model": ""}, {"low": 3.0, "high": 3.0},
     {"url": "ftp://x"}, {"url": "http://me:secret@x"}],
)  # fmt: skip
def test_options_that_cannot_work_are_refused_before_a_model_loads(options, golden):
    usual = {"url": "http://x", "model": "m", "low": 0.0, "high": 1.0, "headers_from": ""}
    with golden.refuses((RlzooError, ValueError)):
        check(**{**usual, **options})
