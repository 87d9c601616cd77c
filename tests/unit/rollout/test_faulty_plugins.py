"""Samplers and tasks that give what they should not: a line that names them, whoever asked."""

import types

import pytest
import torch

import rlzoo
from helpers.grids import grid
from helpers.worlds import sampled, step, world_of
from rlzoo import Example, hookimpl
from rlzoo.errors import ComponentError
from rlzoo.rollout.evaluation import evaluate

TASKS = ["addition", "hi_lo"]  # a conversation goes by turns


@pytest.fixture(params=TASKS)
def task(request):
    return request.param


@pytest.fixture
def faulty(task, words):
    """faulty(kind, component): what an experience and an evaluation with it say."""

    def said(kind, component):
        plugin = types.ModuleType("faulty")
        hook = f"register_{kind}s"
        register = lambda register: register(component)  # noqa: E731
        register.__name__ = hook
        setattr(plugin, hook, hookimpl(register))
        own = f"{kind}={component.__name__}"
        other = [] if kind == "task" else [f"task={task}"]
        zoo = rlzoo.load_zoo([plugin])
        with pytest.raises(ComponentError) as raised:
            used(zoo, [*words, *other, own])
        text = str(raised.value)
        assert f"{kind} {component.__name__!r}" in text
        assert "\n" not in text
        return text

    return said


def used(zoo, words):
    world = world_of(zoo, words, "grpo")
    sampled(world)
    evaluate(world, 4)


def column(name, change):
    return lambda drawn: {**drawn, name: change(drawn[name])}


SAMPLERS = {
    "NoneType, not a mapping of columns": lambda drawn: None,
    "no 'response_ids'": lambda drawn: {},
    "no 'sampler_log_probs'": lambda drawn: {"response_ids": drawn["response_ids"]},
    "a column 'advantages'; it may return": lambda drawn: {**drawn, "advantages": torch.zeros(1)},
    "response_ids is list": column("response_ids", torch.Tensor.tolist),
    "response_ids is torch.float32": column("response_ids", torch.Tensor.float),
    "were requested": column("response_ids", lambda x: x[:-1]),
    "tokens were requested": column("response_ids", lambda x: x.repeat(1, 9)),
    "rows of 1 to": column("response_ids", lambda x: x[:, :0]),
    "token 10": column("response_ids", lambda x: x.clamp(min=10**6)),
    "token -1, but the model has tokens 0 to": column("response_ids", lambda x: x.clamp(max=-1)),
    "old_log_probs is torch.float32 of shape": column("old_log_probs", lambda x: x[:, 0]),
    "sampler_log_probs of dtype torch.int64": column("sampler_log_probs", torch.Tensor.long),
    "old_log_probs nan for token 0 of row 0": column("old_log_probs", lambda x: x * torch.nan),
    "sampler_log_probs -inf": column("sampler_log_probs", lambda x: x - torch.inf),
    "sampler_log_probs 1 for token": column("sampler_log_probs", lambda x: 0 * x + 1),
}


@pytest.mark.parametrize(
    ("task", "told"),
    grid(TASKS, SAMPLERS, always=lambda task, told: task == "addition" or "_log_probs" not in told),
)
def test_a_sampler_whose_columns_are_none_is_named(faulty, told):
    def crooked(policy, prompt_ids, prompt_mask, uniforms):
        return SAMPLERS[told](policy.generate(prompt_ids, prompt_mask, uniforms))

    assert told in faulty("sampler", crooked)


LOSSES = {
    "a loss without a gradient": lambda log_probs: log_probs.detach(),
    "its metric 'pg_loss' is also a metric of": lambda x: (x, {"pg_loss": x}),
    "a tuple of 3, not a loss or": lambda x: (x, {}, 0),
}


@pytest.mark.parametrize("cut", ["train.microbatch=null", "train.microbatch=3"])
@pytest.mark.parametrize("couples", ["row", "batch"])
@pytest.mark.parametrize("told", LOSSES)
def test_a_loss_that_cannot_be_learnt_from_is_named(words, told, couples, cut):
    def crooked(log_probs, advantages):
        return LOSSES[told](log_probs * advantages)

    plugin = types.ModuleType("faulty")
    hook = lambda register: register(crooked, couples=couples)  # noqa: E731
    hook.__name__ = "register_policy_losses"
    plugin.register_policy_losses = hookimpl(hook)
    world = world_of(rlzoo.load_zoo([plugin]), [*words, "policy_loss=crooked", cut], "grpo")
    with pytest.raises(ComponentError, match=r"policy_loss 'crooked' .*" + told):
        step(world)


def draws(*example):
    return lambda self, split, n, generator: [Example(*example)] * n


TASKS = {
    "draw raised TypeError": {"draw": lambda self, split, n, generator: None},
    "prompts instead of 256": {"draw": lambda self, split, n, generator: []},
    "messages with role and content. Got 3": {"draw": draws(3, "b", 0)},
    "Got [{'rol': 'user'}]": {"draw": draws([{"rol": "user"}], "b", 0)},
    "an index must be a 64-bit int. Got 'c'": {"draw": draws("a", "b", "c")},
    "a 64-bit int. Got 1180591620717411303424": {"draw": draws("a", "b", 2**70)},
    "Got {1} for the prompt 'a'": {"draw": draws("a", {1}, 0)},
    "fit raised": {"fit": lambda self, count, room: 1 / 0},
    "domain_of raised": {"domain_of": lambda self, example: 1 / 0},
    "is_correct returned torch.bool of shape (1,)": {"is_correct": lambda self, answers: [True]},
    "is_correct returned torch.float32": {"is_correct": lambda self, answers: [0.5] * len(answers)},
}


@pytest.mark.parametrize("told", TASKS)
@pytest.mark.parametrize("faulty", ["addition"], indirect=True)
def test_a_task_whose_methods_give_something_else_is_named(faulty, told):
    def crooked():
        """A task. Source: the tests."""
        plain = {"draw": draws("a:", "b", 0), "score": lambda self, answers: [0.0] * len(answers)}
        return type("Crooked", (), plain | TASKS[told])()

    assert told in faulty("task", crooked)
