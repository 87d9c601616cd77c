"""Columns that roll out or score anew: greedy baselines, branch rollouts, implicit rewards."""

from types import SimpleNamespace

import pytest
import torch

import rlzoo
from helpers.zoo import ZOO
from rlzoo.errors import ComponentError
from rlzoo.lm.policy import Policy
from rlzoo_lab.supervised.tiny import build_model, build_tokenizer

EOS, PAD = 1, 0


class Letters:
    """A tokenizer of one letter per token."""

    def batch_decode(self, rows, skip_special_tokens):
        return ["".join(chr(97 + i) for i in row) for row in rows]

    def decode(self, row, skip_special_tokens):
        return self.batch_decode([row], skip_special_tokens)[0]

    def convert_ids_to_tokens(self, i):
        return chr(97 + i)


def fake_sample(lengths, limit=None, calls=None):
    """Continuations of `lengths` tokens, cycling over rows: 5, 5, ..., EOS; what it saw: calls."""
    seen = [] if calls is None else calls

    def sample(prompt_ids, prompt_mask, *, max_new_tokens=None, greedy=False, of=None):
        seen.append((prompt_ids, prompt_mask, max_new_tokens, greedy))
        n = torch.tensor([lengths[i % len(lengths)] for i in range(len(prompt_ids))])
        place = torch.arange(int(n.max())).expand(len(n), -1)
        ids = torch.where(place < n[:, None] - 1, 5, torch.where(place < n[:, None], EOS, PAD))
        mask = (place < n[:, None]).float()
        ended = torch.ones(len(n), dtype=torch.bool)
        texts = ["f" * (k - 1) for k in n.tolist()]
        return {"response_ids": ids, "response_mask": mask, "response_attention": mask,
                "terminated": ended, "truncated": ~ended, "responses": texts}  # fmt: skip

    if limit is not None:
        sample.max_new_tokens = limit
    return sample


def rows():
    """Two prompts of 2 and 1 tokens; responses of 5 tokens (a hole at 2) and of 3."""
    return {
        "prompt_ids": torch.tensor([[8, 9], [PAD, 7]]),
        "prompt_mask": torch.tensor([[1.0, 1], [0, 1]]),
        "response_ids": torch.tensor([[2, 3, 4, 2, EOS], [6, 6, EOS, PAD, PAD]]),
        "response_mask": torch.tensor([[1.0, 1, 0, 1, 1], [1, 1, 1, 0, 0]]),
        "response_attention": torch.tensor([[1.0, 1, 1, 1, 1], [1, 1, 1, 0, 0]]),
        "response_tokens": [["c", "d", "c", ""], ["g", "g", ""]],
        "scores": torch.tensor([[0.5, 0, 0, 0, 1], [0, 0, 2, 0, 0]]),
        "tokenizer": Letters(),
    }


def test_steps_of_so_many_actions():
    steps = ZOO.columns["branch_steps"](rows(), tokens=2)
    assert steps.tolist() == [[0, 0, 0, 1, 1], [0, 0, 1, 0, 0]]
    assert ZOO.columns["branch_steps"](rows(), tokens=9).max() == 0


def test_steps_end_at_a_separator():
    steps = ZOO.columns["branch_steps"](rows(), separator="c")
    assert steps.tolist() == [[0, 1, 0, 1, 2], [0, 0, 0, 0, 0]]  # not at the observation
    seen = ZOO.columns["branch_steps"](rows(), separator="e")  # an observation ends no step
    assert seen.max() == 0


def branch(lengths, limit=None, rollouts=3, score=None, calls=None):
    columns = rows()
    columns["branch_steps"] = ZOO.columns["branch_steps"](columns, tokens=2)
    columns["sample"] = fake_sample(lengths, limit, calls)
    columns["score"] = score or (lambda other: other["response_attention"].sum(1))
    return ZOO.columns["branch_scores"](columns, rollouts=rollouts)


def test_branches_start_from_each_steps_state_in_one_call():
    calls = []
    branch([2], calls=calls)
    ((ids, mask, _, greedy),) = calls
    assert not greedy
    assert len(ids) == 4 * 3  # states times rollouts
    kept = [i[m.bool()].tolist() for i, m in zip(ids, mask, strict=True)]
    states = [[8, 9], [8, 9, 2, 3, 4], [7], [7, 6, 6]]  # the observation is part of the state
    assert kept == [state for state in states for _ in range(3)]
    assert (mask[:, -1] == 1).all()  # left-padded


def test_branches_are_scored_whole_less_what_was_earned():
    seen = []

    def score(other):
        seen.append(other)
        return other["response_attention"].sum(1)  # its length

    result = branch([1, 2, 4], score=score)
    assert result.shape == (2, 5, 3)
    # Row 0, step 0: 0 old tokens; step 1 from t = 3, where .5 has been earned.
    first, second = torch.tensor([1.0, 2, 4]), torch.tensor([1.0, 2, 4]) + 3 - 0.5
    torch.testing.assert_close(result[0, [0, 1]], first.expand(2, 3))
    torch.testing.assert_close(result[0, [3, 4]], second.expand(2, 3))
    assert not result[0, 2].any()  # off the mask
    torch.testing.assert_close(result[1, 2], torch.tensor([1.0, 2, 4]) + 2)
    (other,) = seen
    assert other["rows"].tolist() == [0] * 6 + [1] * 6
    assert other["responses"][:6] == ["", "f", "fff", "cde", "cdef", "cdefff"]
    assert other["response_mask"][4].tolist()[:5] == [1, 1, 0, 1, 1]
    assert other["response_ids"][4].tolist()[:5] == [2, 3, 4, 5, EOS]
    assert other["terminated"].all()


def test_branches_are_cut_at_the_length_limit():
    seen, calls = [], []

    def score(other):
        seen.append(other)
        return other["truncated"].float()

    result = branch([1, 2, 4], limit=5, score=score, calls=calls)
    assert calls[0][2] == 5
    assert result[0, 3].tolist() == [-0.5, -0.5, 0.5]  # 3 + 4 tokens do not fit
    (other,) = seen
    assert other["response_attention"].sum(1).max() == 5
    assert other["responses"][5] == "cdeff"
    assert (other["terminated"] != other["truncated"]).all()


def test_no_action_needs_no_branch():
    columns = rows()
    columns["response_mask"] = columns["response_mask"] * 0
    columns["branch_steps"] = columns["response_mask"]
    columns["sample"] = columns["score"] = None
    assert ZOO.columns["branch_scores"](columns, rollouts=2).shape == (2, 5, 2)


def test_vineppo_credits_steps_by_branches():
    """All in all a response gets its score minus the value of its prompt."""
    columns = rows()
    columns["branch_steps"] = ZOO.columns["branch_steps"](columns, tokens=2)
    columns["branch_scores"] = branch([1, 2, 4])
    columns["branch_values"] = values = ZOO.columns["branch_values"](columns)
    columns["rewards"] = columns["scores"]
    advantages = ZOO.estimators["vineppo"](columns)["advantages"]
    torch.testing.assert_close(advantages[0, [0, 3]].sum(), 1.5 - values[0, 0])
    torch.testing.assert_close(advantages[0, 0], 0.5 + values[0, 3] - values[0, 0])
    assert advantages[0, 2] == 0


def test_intervals():
    def half(*draws):
        scores = torch.tensor(draws, dtype=torch.float64).view(1, 1, -1)
        mask = torch.ones(1, 1, dtype=torch.float64)
        columns = {"branch_scores": scores, "response_mask": mask}
        return float(ZOO.columns["branch_intervals"](columns))

    from scipy.stats import binomtest

    for right in range(11):
        interval = binomtest(right, 10).proportion_ci(method="wilson")
        wanted = (interval.high - interval.low) / 2
        assert half(*[1.0] * right, *[0.0] * (10 - right)) == pytest.approx(wanted, abs=1e-4)
    assert half(1.0, 2, 3, 4) == pytest.approx(1.96 * (5 / 3 / 4) ** 0.5)
    assert half(0.7) == 0


def test_greedy_rollouts_are_shared_by_rows_of_one_prompt_and_answer():
    calls, seen = [], []
    prompts = torch.tensor([[8, 9], [PAD, 9], [8, 9], [PAD, 9], [8, 9]])
    mask = torch.tensor([[1.0, 1], [0, 1], [1, 1], [0, 1], [1, 1]])

    def score(other):
        seen.append(other)
        return other["response_mask"].sum(1) + 10 * other["rows"]

    result = ZOO.columns["greedy_scores"]({
        "sample": fake_sample([3, 4], calls=calls), "score": score,
        "prompt_ids": prompts, "prompt_mask": mask, "response_mask": torch.ones(5, 2),
        "answers": list("ababa"),
    })  # fmt: skip
    ((ids, given, _, greedy),) = calls
    assert greedy
    assert sorted(zip(ids.tolist(), given.tolist(), strict=True)) == [
        ([0, 9], [0, 1]), ([8, 9], [1, 1])]  # fmt: skip
    assert result.tolist() == [3, 14, 23, 34, 43]
    assert seen[0]["responses"] == ["ff", "fff", "ff", "fff", "ff"]
    ZOO.columns["greedy_scores"]({
        "sample": fake_sample([3], calls=calls), "score": score, "answers": list("abcba"),
        "prompt_ids": prompts, "prompt_mask": mask, "response_mask": torch.ones(5, 2),
    })  # fmt: skip
    assert len(calls[1][0]) == 3


def _lm(seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_model({"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1,
                            "num_attention_heads": 2, "max_position_embeddings": 64},
                           build_tokenizer()).eval()  # fmt: skip


def test_implicit_rewards_are_log_ratios(tmp_path):
    phi, reference = _lm(0), _lm(1)
    tokenizer = build_tokenizer()
    phi.save_pretrained(tmp_path)
    columns = rows()
    columns["reference"] = Policy.of(reference, tokenizer)
    result = ZOO.columns["implicit_rewards"](columns, path=str(tmp_path), beta=0.5, rows=1)
    wanted = torch.zeros(2, 5)
    for row, (prompt, n) in enumerate([([8, 9], 5), ([7], 3)]):
        ids = torch.tensor([prompt + columns["response_ids"][row, :n].tolist()])
        with torch.no_grad():
            ratio = phi(ids).logits.log_softmax(-1) - reference(ids).logits.log_softmax(-1)
        at = torch.arange(len(prompt), ids.shape[1])
        wanted[row, :n] = 0.5 * ratio[0, at - 1, ids[0, at]]
    torch.testing.assert_close(result, wanted * columns["response_mask"], rtol=1e-4, atol=1e-5)
    together = ZOO.columns["implicit_rewards"](columns, path=str(tmp_path), beta=0.5)
    torch.testing.assert_close(together, result, rtol=1e-4, atol=1e-6)
    columns["reference"] = Policy.of(phi, tokenizer)
    same = ZOO.columns["implicit_rewards"](columns, path=str(tmp_path))
    assert same.abs().max() < 1e-6


def test_implicit_rewards_of_a_model_with_fewer_tokens_are_refused(tmp_path, golden):
    phi, tokenizer = _lm(0), build_tokenizer()
    phi.resize_token_embeddings(len(tokenizer) - 2)
    phi.save_pretrained(tmp_path)
    columns = {**rows(), "reference": Policy.of(_lm(1), tokenizer)}
    with golden.refuses(rlzoo.RlzooError):
        ZOO.columns["implicit_rewards"](columns, path=str(tmp_path))


def test_implicit_rewards_need_a_model(golden):
    columns = {**rows(), "reference": SimpleNamespace(model=None)}
    with golden.refuses(rlzoo.RlzooError):
        ZOO.columns["implicit_rewards"](columns)
    with golden.refuses(ComponentError):
        ZOO.columns["implicit_rewards"](columns, beta=0.0)
