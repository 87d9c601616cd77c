"""`rlzoo serve`: a run whose rows agents play."""

import argparse
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rlzoo.errors import UsageError
from rlzoo_lab.serve import words_of

AGENT = Path(__file__).parents[2] / "docs/studies/agent.py"


def arguments(*words):
    return argparse.Namespace(words=list(words), host="127.0.0.1", port=8011)


def test_the_words_choose_sampler_and_task_and_leave_the_rest():
    words = words_of(arguments("grpo", "model=turns"))
    assert words[:2] == ["grpo", "model=turns"]
    assert {"sampler=sessions", "sampler.port=8011", "task=sessions"} <= set(words)
    words = words_of(arguments("grpo", "task=addition", "eval.samples=64"))
    assert "task=sessions" not in words
    assert [w for w in words if w.startswith("eval.samples")] == ["eval.samples=64"]
    with pytest.raises(UsageError, match="--port"):
        words_of(arguments("grpo", "sampler.port=1"))


@pytest.mark.process
@pytest.mark.landing
def test_a_run_trains_on_what_an_agent_plays(tmp_path, monkeypatch):
    from rlzoo.cli import main

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    monkeypatch.setenv("RLZOO_TOKEN", "a-token-for-these-tests")
    url = f"http://127.0.0.1:{port}"
    agent = subprocess.Popen(
        [sys.executable, str(AGENT), url, "--agents", "4", "--patience", "60"], env=os.environ
    )
    words = ["serve", "grpo", "model=turns", "task.prompt='1-15:'", "rollout.max_new_tokens=26"]
    words += ["rollout.prompts=2", "rollout.samples=4", "train.steps=2", "device=cpu"]
    try:
        threading.Timer(120, agent.kill).start()
        assert main([*words, f"run.dir={tmp_path / 'run'}", "--port", port]) == 0
    finally:
        agent.kill()
        agent.wait()
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    steps = [line for line in lines if "actor/pg_loss" in line]
    assert [line["step"] for line in steps] == [1, 2]
