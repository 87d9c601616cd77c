"""`world`: a recipe that samples by sessions."""

import pytest

from helpers.sessions import TOKEN, World
from rlzoo_zoo.samplers import sessions as module


@pytest.fixture
def world(zoo, monkeypatch):
    monkeypatch.setenv("RLZOO_TOKEN", TOKEN)
    monkeypatch.setenv("RLZOO_ALLOW_ENV", "RLZOO_TOKEN")
    monkeypatch.setattr(module, "SERVERS", {})
    yield lambda *words: World(zoo, *words)
    for server in module.SERVERS.values():
        server.stop()
