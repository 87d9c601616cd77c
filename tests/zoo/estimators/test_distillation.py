"""Distillation on the student's own samples: what the papers say of the advantages."""

import math

import torch

from rlzoo.plugin.call import call
from rlzoo_lab.kit.checks.made_up import made_up

F64 = torch.float64


def advantages(zoo, name, columns, **options):
    component = zoo.estimators[name]
    given = {n: columns[n] for n in component.needs} | {"response_mask": columns["response_mask"]}
    return call(component, given, component.check_options(options))["advantages"]


def one_state(tokens=6, seed=0):
    """(student's logits, the teacher's log-probs), (V,) each, of one state."""
    draw = torch.Generator().manual_seed(seed)
    logits, teacher = torch.randn(2, tokens, generator=draw, dtype=F64)
    return logits.requires_grad_(), teacher.log_softmax(-1)


def every_token(log_p, log_q, **more):
    """Each token of a state as a response of its own, (V, 1)."""
    column = {"old_log_probs": log_p.detach(), "teacher_log_probs": log_q}
    columns = {name: x[:, None] for name, x in column.items()}
    return columns | {"response_mask": torch.ones(len(log_q), 1, dtype=F64)} | more


def test_the_mean_gradient_is_that_of_the_reverse_kl(zoo):
    """GKD on the student's own samples: sum_a p(a) A(a) grad log p(a) = -grad KL(p, q), whatever
    the baseline."""
    logits, log_q = one_state()
    log_p = logits.log_softmax(-1)
    kl = (log_p.exp() * (log_p - log_q)).sum()
    (want,) = torch.autograd.grad(-kl, logits, retain_graph=True)
    columns = every_token(log_p, log_q, teacher_kl=kl.detach().expand(len(log_q), 1))
    for name in ("opd", "vopd"):
        a = advantages(zoo, name, columns)[:, 0]
        gain = (log_p.exp().detach() * a * log_p).sum()
        (found,) = torch.autograd.grad(gain, logits, retain_graph=True)
        torch.testing.assert_close(found, want)


def test_the_baseline_of_vopd_is_the_mean(zoo):
    """And its gradient varies less than that of `opd`."""
    logits, log_q = one_state(seed=3)
    log_p = logits.log_softmax(-1)
    p = log_p.exp().detach()
    kl = (p * (log_p - log_q)).sum().detach()
    columns = every_token(log_p, log_q, teacher_kl=kl.expand(len(log_q), 1))
    plain, less = (advantages(zoo, name, columns)[:, 0] for name in ("opd", "vopd"))
    assert abs(float((p * less).sum())) < 1e-12
    torch.testing.assert_close(float((p * plain).sum()), -float(kl))
    grad = torch.eye(len(p), dtype=F64) - p  # of log p(a), (V, V)
    spread = [float((p[:, None] * (a[:, None] * grad).square()).sum()) for a in (plain, less)]
    assert spread[1] < spread[0]


def test_opd_adds_up_what_follows(zoo):
    """kl_discount_factor: at 0 each token by itself, at gamma what comes after it too."""
    q = torch.tensor([[-1.0, -2.0, -0.5]], dtype=F64)
    columns = {
        "teacher_log_probs": q,
        "old_log_probs": torch.tensor([[-2.0, -1.0, -1.5]], dtype=F64),
        "response_mask": torch.ones(1, 3, dtype=F64),
    }
    assert advantages(zoo, "opd", columns).tolist() == [[1.0, -1.0, 1.0]]
    assert advantages(zoo, "opd", columns, gamma=0.5).tolist() == [[0.75, -0.5, 1.0]]
    assert advantages(zoo, "opd", columns, gamma=1.0).tolist() == [[1.0, 0.0, 1.0]]


def test_iw_opd_by_hand(zoo):
    """d = 1, 2, 1 of 4: F before each token is 0, 1/4, 3/4; an observation counts for nothing."""
    gain = torch.tensor([[1.0, 9.0, -2.0, 1.0, 0.0]], dtype=F64)
    columns = {
        "teacher_log_probs": gain,
        "old_log_probs": torch.zeros(1, 5, dtype=F64),
        "response_mask": torch.tensor([[1.0, 0, 1, 1, 0]], dtype=F64),
    }
    found = advantages(zoo, "iw_opd", columns)
    want = torch.tensor([[1.5 * 1, 0, 1.375 * -2, 1.125 * 1, 0]], dtype=F64)
    torch.testing.assert_close(found, want, atol=1e-8, rtol=0)
    same = advantages(zoo, "iw_opd", columns, weight_max=1.0)
    torch.testing.assert_close(same, advantages(zoo, "opd", columns))


def test_iw_opd_token_by_token(zoo):
    """The published loop: g_t = 1 + (w - 1) (1 - sum_{k<t} d_k / sum_k d_k)."""
    columns = made_up(zoo)
    found = advantages(zoo, "iw_opd", columns, weight_max=3.0)
    gain = columns["teacher_log_probs"] - columns["old_log_probs"]
    for row, mask in enumerate(columns["response_mask"].bool()):
        d = gain[row].abs()
        before, total = 0.0, float(d[mask].sum())
        for t in mask.nonzero()[:, 0].tolist():
            weight = 1 + 2 * (1 - before / (total + 1e-8))
            torch.testing.assert_close(found[row, t], weight * gain[row, t])
            before += float(d[t])


def test_mopd_is_the_teachers_word_and_the_groups(zoo):
    columns = made_up(zoo)
    teacher, outcome = (advantages(zoo, name, columns) for name in ("opd", "grpo"))
    torch.testing.assert_close(advantages(zoo, "mopd", columns), teacher + outcome)
    torch.testing.assert_close(advantages(zoo, "mopd", columns, alpha=0.0), teacher)


def test_rlsd_by_loops_and_its_signs(zoo):
    """Each token by the formula; no advantage changes its sign, and without a gap it is GRPO's."""
    c = made_up(zoo, 5)
    c["self_teacher_log_probs"] = c["teacher_log_probs"].double()
    c["sequence_rewards"] = torch.arange(len(c["group_ids"]), dtype=F64) % 3
    plain = advantages(zoo, "grpo", c)
    options = {"strength": 0.7, "clip": 0.3}
    got = advantages(zoo, "rlsd", c, **options)
    want = torch.zeros_like(got)
    for i, t in c["response_mask"].nonzero().tolist():
        a = float(plain[i, t])
        gap = float(c["self_teacher_log_probs"][i, t] - c["old_log_probs"][i, t])
        w = math.exp(gap if a > 0 else -gap if a < 0 else 0.0)
        want[i, t] = a * (0.3 + 0.7 * min(max(w, 0.7), 1.3))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-12)
    assert torch.equal(got.sign(), plain.sign())
    assert not torch.allclose(got, plain)
    c["self_teacher_log_probs"] = c["old_log_probs"]
    torch.testing.assert_close(advantages(zoo, "rlsd", c, **options), plain, rtol=0, atol=1e-12)
