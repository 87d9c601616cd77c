"""What a stranger's code may raise, and what it cannot spoil."""

import errno
import sys
import time
import warnings

import pytest
import torch

import rlzoo
from rlzoo.errors import ComponentError, RlzooError
from rlzoo.plugin.border import Bound, border, told
from rlzoo.plugin.call import own
from rlzoo.plugin.component import read_component
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.kit import checks


class Own(BaseException):
    pass


class Mute(Exception):
    def __str__(self):
        raise RuntimeError("not even a word")


BAD = {  # a plugin's source -> what is said of it
    "raise GeneratorExit": "GeneratorExit",
    "import sys; sys.exit(0)": "SystemExit: 0",
    "class B(BaseException): pass\nraise B('own')": "B: own (at bad2.py:2)",
    "class M(Exception):\n    def __str__(self): 1 / 0\nraise M()": "M: no message",
}
ODD = """
from rlzoo import hookimpl

class Yes:
    def __getattr__(self, name): return self

class No:
    def __getattr__(self, name): raise RuntimeError(name)

yes, no = Yes(), No()

def fine(rewards):
    '''Source: here.'''
    return rewards

@hookimpl
def register_estimators(register):
    register(fine)
"""


def test_a_plugin_may_raise_and_hold_what_it_likes(tmp_path):
    files = [tmp_path / f"bad{i}.py" for i in range(len(BAD))] + [tmp_path / "odd.py"]
    for file, source in zip(files, [*BAD, ODD], strict=True):
        file.write_text(source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        zoo = rlzoo.load_zoo(files)
    for broken, reason in zip(zoo.broken, BAD.values(), strict=True):
        assert reason in broken.reason
    assert {"gae", "fine"} <= set(zoo.estimators)  # `odd.py` has globals that answer to any name


def test_a_long_docstring_is_read_at_once():
    def f(rewards):
        return rewards

    f.__doc__ = "x" * 1_000_000 + " (arXiv:2402.03300)"
    began = time.process_time()
    read_component("estimators", f, "here")
    assert time.process_time() - began < 1


@pytest.mark.parametrize(
    "error",
    [SystemExit(0), Own("x"), Mute(), ValueError("a\nb"), GeneratorExit(), MemoryError("m"),
     OSError(errno.ENOSPC, "No space left on device")],
)  # fmt: skip
def test_whatever_is_raised_is_one_line_that_names_the_component(error):
    with pytest.raises(ComponentError) as caught, border("reward 'f' (f.py:1)"):
        raise error
    text = str(caught.value)
    assert text.startswith(f"reward 'f' (f.py:1) raised {type(error).__name__}: ")
    assert "\n" not in text


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), torch.OutOfMemoryError(), RlzooError("mine")]
)
def test_what_is_no_fault_of_a_component_goes_through(error):
    with pytest.raises(type(error)) as caught, border("reward 'f'"):
        raise error
    assert caught.value is error


def test_the_place_is_the_plugins_own_not_a_librarys():
    with pytest.raises(RuntimeError) as caught:
        torch.zeros(2) @ torch.zeros(3)
    assert "test_border.py" in told(caught.value)


def leaves_early(rewards, response_mask):
    raise SystemExit(0)


def test_an_estimator_that_exits_ends_no_process(zoo):
    component = read_component("estimators", leaves_early, "here")
    columns = {"rewards": torch.ones(1, 2), "response_mask": torch.ones(1, 2)}
    with pytest.raises(ComponentError, match="'leaves_early' .* raised SystemExit"):
        Bound.of(component, {})(columns)
    results = checks.run_checks(component, zoo)
    assert any(r.passed is False and "SystemExit" in r.message for r in results)


def seeds(rewards, response_mask):
    """Source: here."""
    torch.manual_seed(0)
    return rewards * response_mask


def changes_dtype(rewards, response_mask):
    """Source: here."""
    torch.set_default_dtype(torch.float64)
    return rewards * response_mask


@pytest.mark.parametrize(("function", "said"), [(seeds, "or seeds them"), (changes_dtype, "dtype")])
def test_check_sees_what_is_changed_for_all(function, said, zoo):
    results = checks.run_checks(read_component("estimators", function, "here"), zoo)
    assert any(r.passed is False and said in r.message for r in results)
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize("source", ["raise SystemExit(0)", "1 / 0", "def f(a, b, c): ..."])
def test_a_rewards_module_that_exits_ends_no_process(zoo, tmp_path, monkeypatch, source):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "leaves.py").write_text(source)
    monkeypatch.delitem(sys.modules, "leaves", raising=False)
    words = ["recipe=grpo", "model=nano", "task=reverse", "rewards=python"]
    recipe = compose([*words, "rewards.python.function=leaves:f"], zoo)
    if source.startswith("def"):
        make_plan(recipe, zoo)
        return
    with pytest.raises(ComponentError, match=r"reward 'python' .* raised .* \(at leaves.py:1\)"):
        make_plan(recipe, zoo)


def spoils(sequence_scores, response_mask, group_ids, rewards, values, answers, responses):
    for x in (sequence_scores, response_mask, group_ids, rewards, values):
        x.fill_(9)
    answers[0]["right"].append(9)
    responses.sort()
    return torch.zeros(2, 2)


def test_a_component_gets_what_it_cannot_spoil():
    columns = {
        "sequence_scores": torch.tensor([1.0, 2.0]),
        "response_mask": torch.ones(2, 2),
        "group_ids": torch.tensor([0, 1]),
        "rewards": torch.ones(2, 2),
        "values": torch.full((2, 2), 3.0),
        "answers": [{"right": [1]}, {"right": [2]}],
        "responses": ["b", "a"],
    }
    before = own(columns)
    component = read_component("estimators", spoils, "here")
    out = component(columns)
    for name, x in before.items():
        same = torch.equal(x, columns[name]) if isinstance(x, torch.Tensor) else x == columns[name]
        assert same, name
    assert out["returns"].tolist() == [[3.0, 3.0], [3.0, 3.0]]  # by the batch's own values
