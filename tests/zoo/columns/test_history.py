"""SPO's tracker: the authors' counts as the oracle, its limits, and what a checkpoint keeps."""

import json
import math
import random

import pytest
import torch
from torch.testing import assert_close

import rlzoo
from helpers.runs import StopAt, untimed
from helpers.zoo import ZOO
from rlzoo.rollout.sample import draw
from rlzoo.train.start import open_recipe, resume
from rlzoo_lab.diagnose.trace.sources import observe

F64 = torch.float64
PROMPTS = {"1+1=": [5, 6], "2+2=": [7], "3+3=": [8, 9, 4]}


class Drifting:
    """A policy whose log-probs are a function of the prompt, the tokens so far and `at`."""

    def __init__(self):
        self.at, self.calls = 0, []

    def log_prob(self, prompt, ids, t):
        return -1 - math.sin(sum(prompt) + 3 * sum(ids[: t + 1]) + 0.02 * self.at * ids[t]) ** 2

    def log_prob_stats(self, columns):
        self.calls.append(len(columns["response_ids"]))
        out = torch.zeros_like(columns["response_mask"])
        for i, ids in enumerate(columns["response_ids"].tolist()):
            prompt = columns["prompt_ids"][i][columns["prompt_mask"][i].bool()].tolist()
            length = int(columns["response_attention"][i].sum())
            assert not columns["response_mask"][i, length:].any()
            for t in range(length):
                out[i, t] = columns["response_mask"][i, t] * self.log_prob(prompt, ids, t)
        return {"log_probs": out}


def padded(lists, left=False, dtype=F64):
    width = max(map(len, lists))
    gaps = [[0] * (width - len(x)) for x in lists]
    wide = [g + x if left else x + g for x, g in zip(lists, gaps, strict=True)]
    return torch.tensor(wide, dtype=dtype)


def batch(policy, rows):
    """Columns of rows (prompt, tokens, mask, score)."""
    prompts, ids, masks, scores = zip(*rows, strict=True)
    inner = [PROMPTS[p] for p in prompts]
    return {
        "policy": policy,
        "prompts": list(prompts),
        "prompt_ids": padded(inner, left=True, dtype=torch.long),
        "prompt_mask": padded([[1] * len(x) for x in inner], left=True),
        "response_ids": padded(list(ids), dtype=torch.long),
        "response_mask": padded(list(masks)),
        "response_attention": padded([[1] * len(x) for x in ids]),
        "old_log_probs": padded([
            [m * policy.log_prob(PROMPTS[p], x, t) for t, m in enumerate(mask)]
            for p, x, mask in zip(prompts, ids, masks, strict=True)
        ]),
        "sequence_scores": torch.tensor(scores, dtype=F64),
    }  # fmt: skip


def tracked(policy, steps, **options):
    """The column at each step, and the memory at the end, which is saved between steps."""
    memory, found = {}, []
    for policy.at, rows in enumerate(steps):
        given = {**batch(policy, rows), "memory": memory}
        found.append(ZOO.columns["history"](given, **options).tolist())
        memory = json.loads(json.dumps(memory))
    return found, memory


def row(draw, prompt, score=None):
    length = draw.randint(1, 6)
    mask = [int(draw.random() < 0.7) for _ in range(length - 1)] + [1]
    score = draw.choice([0.0, 1.0]) if score is None else score
    return prompt, [draw.randint(1, 9) for _ in range(length)], mask, score


def counted(policy, steps, half=0.06, least=0.875, most=0.96):
    """alpha and beta of each prompt, as the authors count them: one row of a prompt in a step."""
    alpha, beta, last, found = {}, {}, {}, []
    for policy.at, rows in enumerate(steps):
        found.append([])
        for prompt, ids, mask, r in rows:
            a, b = alpha.get(prompt, 0.5), beta.get(prompt, 0.5)
            found[-1].append(a / (a + b))
            gaps = [
                abs(policy.log_prob(PROMPTS[prompt], last[prompt][0], t) - then)
                for t, then in last.get(prompt, ((), {}))[1].items()
            ]
            d = sum(gaps) / len(gaps) if gaps else 0.0
            rho = max(least, min(most, 2.0 ** -(d / half)))
            alpha[prompt], beta[prompt] = rho * a + r, rho * b + (1 - r)
            acts = [t for t, m in enumerate(mask) if m]
            last[prompt] = ids, {t: policy.log_prob(PROMPTS[prompt], ids, t) for t in acts}
    return found


@pytest.mark.parametrize(
    "options", [{}, {"half": 1.3, "least": 0.1, "most": 1.0}, {"least": 0.9, "most": 0.9}]
)
def test_the_value_is_that_of_the_authors_counts(options):
    dice = random.Random(0)
    steps = [[row(dice, p) for p in dice.sample(list(PROMPTS), dice.randint(1, 3))]
             for _ in range(30)]  # fmt: skip
    policy = Drifting()
    found, _ = tracked(policy, steps, rows=2, **options)
    wanted = counted(policy, steps, **options)
    for got, want in zip(found, wanted, strict=True):
        assert_close(got, want, rtol=0, atol=1e-12)
    assert max(policy.calls, default=0) == (2 if options.get("least") != 0.9 else 0)


def test_a_constant_rho_of_1_is_the_running_mean_and_of_0_the_last_visit():
    dice = random.Random(1)
    scores = [[3.0], [-2.0, 4.5], [0.25], [7.0, 7.0, 1.0], [0.0]]  # of any range
    steps = [[row(dice, "1+1=", score) for score in one] for one in scores]
    found, memory = tracked(Drifting(), steps, least=1.0, most=1.0, weight=0.0, start=-3.0)
    before = [[-3.0], *([x for one in scores[:t] for x in one] for t in range(1, 5))]
    for got, want, one in zip(found, before, scores, strict=True):
        assert_close(got, [sum(want) / len(want)] * len(one), rtol=0, atol=1e-12)
    assert [len(entry) for entry in memory["history"].values()] == [2]  # no response is kept
    found, _ = tracked(Drifting(), steps, least=0.0, most=0.0)
    last = [0.5, 3.0, 1.25, 0.25, 5.0]
    assert [one[0] for one in found] == last


def test_limits_in_the_wrong_order_are_refused(golden):
    with golden.refuses(ValueError):
        ZOO.columns["history"].refuse({"least": 0.97, "most": 0.96})


# ---------------------------------------------------------------- in a run


def entries(trainer):
    return {key: entry[:2] for key, entry in trainer.world.memory["history"].items()}


@pytest.mark.parametrize(("rate", "same"), [("0", True), ("3e-2", False)])
def test_rho_follows_the_policys_drift(words, rate, same):
    """A game whose first text is one for all: four rows a step, and observations in them."""
    options = ["columns.history.least=0", "columns.history.most=1", f"actor.lr={rate}"]
    paid = ["task=hi_lo", "rollout.samples=1", "rewards.random.weight=1.0"]
    trainer = open_recipe("spo", [*words, *paid, *options], zoo=ZOO)
    for _ in range(3):
        trainer.step()
    ((_, n),) = entries(trainer).values()
    assert (abs(n - 13) < 1e-3) == same
    assert 4 < n < 13 + 1e-3


def test_only_training_batches_change_the_history(words):
    trainer = open_recipe("spo", words, zoo=ZOO)
    prompts = draw(trainer.world, "train", 2, "train", 0)
    observe(trainer.world, prompts, 0, 0.0, stream="look")
    assert trainer.world.memory == {}
    trainer.sample()
    assert len(entries(trainer)) > 1


@pytest.mark.landing
@pytest.mark.process
def test_a_run_that_was_cut_goes_on_with_the_history(words, tmp_path):
    words = [*words, "actor.lr=1e-2", "train.steps=6"]
    rlzoo.run("spo", [*words, f"run.dir={tmp_path / 'whole'}"], zoo=ZOO)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("spo", [*words, f"run.dir={tmp_path / 'cut'}"], zoo=ZOO, display=StopAt(5))
    resume(tmp_path / "cut", zoo=ZOO)
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")
