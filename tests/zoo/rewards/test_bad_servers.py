"""Reward servers that cut off, flood or nest: one line, bounded memory, no URL given away."""

import socket
import threading

import pytest
import torch

from rlzoo.errors import RlzooError
from rlzoo_zoo.rewards.http import http

GOOD = b'{"scores": [1.0, 2.0]}'


@pytest.fixture
def serve():
    """serve(raw, raw, ...): the URL of a server that gives these bytes, one a connection."""
    listening = socket.create_server(("127.0.0.1", 0))
    given = []

    def answer():
        while given:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as request:
                length = 0
                while (line := request.readline().lower()) not in (b"\r\n", b""):
                    if line.startswith(b"content-length:"):
                        length = int(line.split(b":")[1])
                request.read(length)  # what is left unread at the end resets the connection
                connection.sendall(given.pop(0))

    def make(*raws):
        given.extend(raws)
        threading.Thread(target=answer, daemon=True).start()
        return f"http://127.0.0.1:{listening.getsockname()[1]}/s3cret"

    yield make
    listening.close()


def raw(body, length=None, more=b""):
    length = len(body) if length is None else length
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n%s\r\n%s" % (length, more, body)


def ask(url, **options):
    mask = torch.ones(2, 3)
    given = {"url": url, "backoff": 0.0, "retries": 2, "timeout": 5.0, **options}
    return http(["p", "p"], ["a", "b"], [[], []], ["", ""], mask, **given)


def test_an_answer_cut_short_is_asked_for_again(serve):
    url = serve(raw(GOOD[:9], len(GOOD)), raw(b"", 5), raw(GOOD))
    assert ask(url).tolist() == [1.0, 2.0]


def test_a_chunked_answer_cut_short_is_asked_for_again(serve):
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert ask(serve(head + b"16\r\n" + GOOD[:9], raw(GOOD))).tolist() == [1.0, 2.0]


def test_one_that_is_always_cut_short_ends_by_on_failure(serve, golden):
    cut = raw(GOOD[:9], len(GOOD))
    with golden.refuses(RlzooError) as caught:
        ask(serve(cut, cut, cut))
    assert caught.error.status == 1  # the run had begun
    assert "s3cret" not in str(caught.error)


def test_an_answer_without_end_is_refused(serve, monkeypatch, golden):
    monkeypatch.setattr("rlzoo_zoo.request.MOST", 2**16)
    with golden.refuses(RlzooError):
        ask(serve(raw(b" " * 2**18)))


def test_an_answer_nested_without_end_is_no_json(serve, golden):
    with golden.refuses(RlzooError) as caught:
        ask(serve(raw(b"[" * 100_000)))
    assert "s3cret" not in str(caught.error)
