"""The processes that judge responses: what their parent is signalled reaches no score."""

import json
import os
import signal
import subprocess
import threading
import time

import pytest

from rlzoo import RlzooError
from rlzoo_zoo.rewards import json_schema, math_verify, regex
from rlzoo_zoo.rewards.worker import Worker

pytestmark = pytest.mark.process

GROUP = [signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGXCPU, signal.SIGQUIT,
         signal.SIGTSTP, signal.SIGUSR1]  # fmt: skip
SLOW = {"not": {"pattern": "^(a+)+$"}}  # valid, once it has backtracked


@pytest.fixture
def worker():
    found = Worker("json_worker", "jsonschema")
    yield found
    found.stop()


def job(response, schema='{"type": "integer"}', timeout=10.0):
    return {"schema": schema, "fenced": False, "response": response, "timeout": timeout}


@pytest.mark.parametrize("reward", [math_verify, json_schema])
def test_a_signal_to_the_group_ends_no_worker(reward):
    ask = {
        math_verify: lambda r: math_verify.verdicts([r], ["5"]),
        json_schema: lambda r: json_schema.json_schema([r], schema='{"const": 5}').tolist(),
    }[reward]
    assert ask("5") == [1]
    process = reward._WORKER.process
    for number in GROUP:
        os.kill(process.pid, number)
        assert (ask("5"), ask("6")) == ([1], [0]), number
    assert reward._WORKER.process is process


def test_nor_one_that_is_starting(worker, monkeypatch):
    """Before it runs a line of its own."""

    class Signalled(subprocess.Popen):
        def __init__(self, *args, **more):
            super().__init__(*args, **more)
            for number in GROUP:
                os.kill(self.pid, number)

    monkeypatch.setattr(subprocess, "Popen", Signalled)
    assert worker.ask(job("5"))
    # a pattern is compiled in a process, too, where it may have no end
    assert regex.compile_pattern("(a{0,999}){0,999}|b").search("b")


def test_nothing_is_blocked_in_the_run_itself(worker):
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    worker.ask(job("5"))
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_a_worker_that_was_killed_judges_again(worker):
    assert worker.ask(job("5"))
    worker.process.kill()
    worker.process.wait()
    assert worker.ask(job("5"))
    assert not worker.ask(job('"5"'))


def test_one_that_is_killed_twice_at_a_response_is_an_error(worker, monkeypatch, golden):
    exchange = worker.exchange
    tries = []

    def killed(text):
        tries.append(worker.process)
        worker.process.kill()
        worker.process.wait()
        return exchange(text)

    monkeypatch.setattr(worker, "exchange", killed)
    with golden.refuses(RlzooError):
        worker.ask(job("5"))
    assert len(set(tries)) == 2
    monkeypatch.undo()
    assert worker.ask(job("5"))


def test_half_a_reply_is_none(worker, monkeypatch):
    """Of a process that was killed while it wrote."""
    exchange, replies = worker.exchange, []

    def cut(text):
        replies.append(exchange(text))
        if len(replies) > 1:
            return replies[-1]
        worker.process.kill()
        return replies[-1][:-2]

    monkeypatch.setattr(worker, "exchange", cut)
    assert worker.ask(job("5"))
    assert len(replies) == 2


def test_the_time_limit_counts_work_and_no_pause(worker):
    """A run that is stopped (Ctrl-Z, a scheduler that suspends it) goes on with its worker."""
    schema, response = json.dumps(SLOW), json.dumps("a" * 21 + "!")
    worker.ask(job("1"))
    began = time.monotonic()
    assert worker.ask(job(response, schema))
    limit = 4 * (time.monotonic() - began) + 0.2
    process = worker.process
    os_kill = lambda number: os.kill(process.pid, number)  # noqa: E731
    timers = [threading.Timer(limit / 20, os_kill, [signal.SIGSTOP]),
              threading.Timer(limit * 1.5, os_kill, [signal.SIGCONT])]  # fmt: skip
    for timer in timers:
        timer.start()
    assert worker.ask(job(response, schema, limit))
    assert worker.process is process
    for timer in timers:
        timer.join()
    assert not worker.ask(job(json.dumps("a" * 60 + "!"), schema, 0.2))


def test_an_interrupted_question_leaves_no_answer_to_the_next(worker, monkeypatch):
    """As in a notebook, where work goes on after the stop button."""
    exchange = worker.exchange

    def interrupted(text):
        worker.process.stdin.write(text + "\n")
        worker.process.stdin.flush()
        raise KeyboardInterrupt

    monkeypatch.setattr(worker, "exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        worker.ask(job('"no integer"'))
    monkeypatch.setattr(worker, "exchange", exchange)
    assert worker.ask(job("5"))
