"""`rlzoo serve`: a run whose rows agents play."""

import argparse
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rlzoo.errors import UsageError
from rlzoo_lab.api.serve import check_free, words_of

AGENT = Path(__file__).parents[3] / "docs/studies/agent.py"


def arguments(*words):
    return argparse.Namespace(words=list(words), host="127.0.0.1", port=8011)


def test_the_words_choose_sampler_and_task_and_leave_the_rest():
    words = words_of(arguments("grpo", "model=turns"))
    assert words[:2] == ["grpo", "model=turns"]
    assert {"sampler=sessions", "sampler.port=8011", "task=sessions"} <= set(words)
    words = words_of(arguments("grpo", "task=addition", "eval.samples=64"))
    assert "task=sessions" not in words
    assert not [w for w in words_of(arguments("grpo", "task=hi_lo")) if w.startswith("eval.")]
    assert [w for w in words if w.startswith("eval.samples")] == ["eval.samples=64"]
    with pytest.raises(UsageError, match="--port"):
        words_of(arguments("grpo", "sampler.port=1"))


def test_an_address_that_is_taken_is_reported_before_a_model_loads():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(UsageError, match="cannot listen"):
            check_free(*taken.getsockname())
    check_free("127.0.0.1", 0)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


WORDS = ["grpo", "model=turns", "task=hi_lo", "rollout.old_log_probs=recomputed",
         "rollout.prompts=1", "rollout.samples=2", "train.steps=2", "eval.samples=4",
         "train.minibatches=1", "checkpoint.every=10", "device=cpu", "run.threads=1"]  # fmt: skip


@pytest.mark.process
def test_a_signal_ends_the_wait_for_agents_and_the_printed_line_continues(
    tmp_path, monkeypatch, capsys
):
    from rlzoo.cli import main

    monkeypatch.syspath_prepend(AGENT.parent)
    monkeypatch.delenv("RLZOO_TOKEN", raising=False)
    import agent

    port, run, signalled = free_port(), tmp_path / "a run", []
    url = f"http://127.0.0.1:{port}"

    def session():
        found = None
        while found is None:
            try:
                found = agent.post(f"{url}/v1/sessions", {})
            except (OSError, KeyError):  # not yet there
                time.sleep(0.05)
        return found

    def play(rows, then=lambda: None):
        for _ in range(rows):
            agent.episode(url, session())
        then()

    def leave():
        session()  # of step 2, and is never heard of again
        signalled.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=play, args=(2, leave), daemon=True).start()
    assert main(["serve", *WORDS, f"run.dir={run}", "--port", str(port)]) == 128 + signal.SIGTERM
    assert time.monotonic() - signalled[0] < 3
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000001"]
    said = capsys.readouterr().err
    token = (run / ".token").read_text().strip()
    assert token not in said
    assert (run / ".token").stat().st_mode & 0o777 == 0o600
    assert "RLZOO_TOKEN" not in os.environ
    line = re.search(r"`(.*rlzoo resume .*)`", said)[1]
    shell = f'rlzoo() {{ printf \'%s\\n\' "$RLZOO_TOKEN" "$@"; }}; {line}'  # what it would get
    first, *typed = subprocess.check_output(["sh", "-c", shell], text=True).splitlines()
    assert first == token
    monkeypatch.setenv("RLZOO_TOKEN", token)
    threading.Thread(target=play, args=(2,), daemon=True).start()
    assert main(typed) == 0
    assert main(["run", *WORDS, f"run.dir={tmp_path / 'here'}"]) == 0
    served, here = (tmp_path / n / "model/model.safetensors" for n in ("a run", "here"))
    assert served.read_bytes() == here.read_bytes()


@pytest.mark.process
@pytest.mark.landing
def test_a_run_on_what_an_agent_plays_ends_with_the_weights_of_one_in_process(
    tmp_path, monkeypatch
):
    from rlzoo.cli import main

    port = str(free_port())
    monkeypatch.setenv("RLZOO_TOKEN", "a-token-for-these-tests")
    url = f"http://127.0.0.1:{port}"
    agent = subprocess.Popen(
        [sys.executable, str(AGENT), url, "--agents", "4", "--patience", "60"], env=os.environ
    )
    words = ["grpo", "model=turns", "task=hi_lo", "rollout.old_log_probs=recomputed"]
    words += ["rollout.prompts=2", "rollout.samples=4", "train.steps=2", "eval.samples=8"]
    words += ["device=cpu", "run.threads=1"]
    try:
        threading.Timer(120, agent.kill).start()
        assert main(["serve", *words, f"run.dir={tmp_path / 'run'}", "--port", port]) == 0
    finally:
        agent.kill()
        agent.wait()
    lines = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").open()]
    steps = [line for line in lines if "actor/pg_loss" in line]
    assert [line["step"] for line in steps] == [1, 2]
    assert main(["run", *words, f"run.dir={tmp_path / 'here'}"]) == 0
    served, here = (tmp_path / name / "model/model.safetensors" for name in ("run", "here"))
    assert served.read_bytes() == here.read_bytes()
