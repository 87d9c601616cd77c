"""A plugin's code that copies the process, and faults that are the machine's or its."""

import errno
import os

import pytest
import torch

import rlzoo
from rlzoo.errors import ComponentError, Unfinished, disk_is_full, of_the_machine
from rlzoo.plugin.border import Bound, border
from rlzoo.plugin.component import read_component
from rlzoo.plugin.registry import load_zoo


def test_a_full_disk_in_a_component_is_one_and_names_it():
    for number in (errno.ENOSPC, errno.EDQUOT):
        with pytest.raises(ComponentError) as caught, border("logger 'f'"):
            raise OSError(number, "no room")
        assert disk_is_full(caught.value)
        assert "logger 'f'" in of_the_machine(caught.value)


def test_an_interruption_is_placed():
    with pytest.raises(KeyboardInterrupt) as caught, border("task 't'"), border("reward 'f'"):
        raise KeyboardInterrupt
    assert caught.value.__notes__ == ["in reward 'f'"]


def test_a_copy_of_the_process_ends_where_it_was_made(capfd):
    """Two would train in one folder."""
    pid = os.getpid()
    with border("reward 'f'"):
        child = os.fork()
    if os.getpid() != pid:
        os._exit(0)  # the copy came through
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    # tokenizers, too, may print lines at a fork.
    (said,) = [line for line in capfd.readouterr().err.splitlines() if line.startswith("rlzoo")]
    assert "reward 'f'" in said


def test_scores_that_are_complex_are_refused():
    def turned(responses, response_mask):
        return [(-8) ** 0.5] * 2

    component = read_component("rewards", turned, "here")
    columns = {"responses": ["a", "b"], "response_mask": torch.ones(2, 2)}
    with pytest.raises(ComponentError, match="'turned' .*complex"):
        Bound.of(component, {})(columns)


SPOILS = """
from rlzoo import hookimpl

def spoils(log_probs, old_log_probs, advantages, response_mask):
    '''Source: a test.'''
    loss = (log_probs - old_log_probs).exp() * advantages
    {}
    return loss

@hookimpl
def register_policy_losses(register):
    register(spoils)
"""


@pytest.mark.parametrize(
    "where",
    [
        "advantages.zero_()",
        "loss = loss.exp(); loss.exp().add_(1)",
        "loss = loss.exp(); loss *= 2; keep = loss * loss; loss += keep",
    ],
)
def test_a_loss_that_spoils_its_own_gradient_is_named(where, zoo, words, tmp_path):
    (tmp_path / "spoils.py").write_text(SPOILS.format(where))
    zoo = load_zoo([tmp_path / "spoils.py"])
    words = [*words, "policy_loss=spoils", f"run.dir={tmp_path / 'run'}"]
    if where.endswith("add_(1)"):  # a tensor that no gradient needs
        rlzoo.run("grpo", words, zoo=zoo)
        return
    with pytest.raises(ComponentError, match="'spoils' .* in place"):
        rlzoo.run("grpo", words, zoo=zoo)


def test_no_memory_is_a_line(zoo, words, tmp_path, monkeypatch):
    def refuses(*_):
        raise RuntimeError("[enforce fail at alloc_cpu.cpp:1] DefaultCPUAllocator: can't allocate "
                           "memory: you tried to allocate 8 bytes.")  # fmt: skip

    monkeypatch.setattr("rlzoo.train.loop.evaluate", refuses)
    with pytest.raises(Unfinished, match="not enough memory .*`rlzoo resume") as caught:
        rlzoo.run("grpo", [*words, f"run.dir={tmp_path / 'run'}"], zoo=zoo)
    assert "\n" not in str(caught.value)
    assert "not enough memory" in of_the_machine(MemoryError())
