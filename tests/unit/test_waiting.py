"""Requests to servers that send single bytes: one limit for all of it, for each caller; pauses."""

import signal
import socket
import threading
import time
from contextlib import suppress
from multiprocessing.pool import ThreadPool

import pytest
import torch

from rlzoo import RlzooError, waiting
from rlzoo.waiting import StoppedWaiting, pause
from rlzoo_zoo.request import Later, request
from rlzoo_zoo.rewards.http import http
from rlzoo_zoo.rewards.judge import judge
from rlzoo_zoo.samplers.openai import Server

LIMIT = 0.3  # seconds


@pytest.fixture
def slow():
    """slow(first, then): the URL of a server that sends `first`, and then `then` for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    ended = threading.Event()

    def send(peer, first, then):
        with peer, suppress(OSError):
            peer.sendall(first)
            while not ended.wait(0.05):
                peer.sendall(then)

    def serve(*what):
        with suppress(OSError):
            while True:
                peer, _ = listener.accept()
                threading.Thread(target=send, args=(peer, *what), daemon=True).start()

    def start(first, then):
        threading.Thread(target=serve, args=(first, then), daemon=True).start()
        return f"http://127.0.0.1:{listener.getsockname()[1]}"

    yield start
    ended.set()
    listener.close()


def test_a_signal_ends_a_pause_of_the_main_thread_alone(monkeypatch):
    monkeypatch.setattr(waiting, "signals", [])
    threading.Timer(0.1, waiting.signals.append, (signal.SIGTERM,)).start()
    began = time.monotonic()
    with pytest.raises(StoppedWaiting) as stopped:
        pause(20)
    assert stopped.value.status == 128 + signal.SIGTERM
    with ThreadPool(1) as pool:  # which would wait for ever for a thread that has ended
        assert pool.apply(pause, (0.05,)) is None
    assert time.monotonic() - began < 10


HEADER = b"HTTP/1.1 200 OK\r\n", b"A: b\r\n"


@pytest.mark.parametrize(
    ("first", "then", "scheme"),
    [
        (b"", b"", "http"),
        (b"H", b"", "http"),
        (b"HTTP/1.1 200 ", b"O", "http"),
        (*HEADER, "http"),
        (b"HTTP/1.1 200 OK\r\nA: ", b"b", "http"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n", "http"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b"x", "http"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n", b"x", "http"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n", "http"),
        (b"HTTP/1.1 503 Busy\r\n\r\n", b"x", "http"),
        (b"", b"", "https"),
        (b"\x16\x03\x03\x40\x00\x02", b"\x00", "https"),  # a handshake, byte by byte
    ],
)
def test_the_limit_is_of_the_whole_request(slow, first, then, scheme):
    url, began = slow(first, then).replace("http", scheme), time.monotonic()
    with pytest.raises(OSError, match="timed out"):
        request(url, b"{}", seconds=LIMIT, most=2**20)
    assert time.monotonic() - began < 4 * LIMIT


def by_http(url):
    http(["p"], ["r"], [[1]], ["a"], torch.ones(1, 1), url=url, timeout=LIMIT, retries=0)


def by_judge(url):
    judge(["p"], ["r"], ["a"], url=url, model="m", timeout=LIMIT, retries=0)


@pytest.mark.parametrize(
    "call",
    [by_http, by_judge, lambda url: Server(url, {}, "", LIMIT).ask("/v1/models")],
    ids=["http", "judge", "openai"],
)
def test_each_caller_has_it(slow, call):
    began = time.monotonic()
    with pytest.raises((RlzooError, Later)):
        call(slow(*HEADER))
    assert time.monotonic() - began < 4 * LIMIT
