"""top_k and top_p, held against transformers' own: what is exported samples the same policy."""

from types import SimpleNamespace

import pytest
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from rlzoo.accel.decode import draw, truncate

ROWS, VOCABULARY = 200, 50


@pytest.fixture(scope="module")
def logits():
    generator = torch.Generator().manual_seed(0)
    return 2 * torch.randn(ROWS, VOCABULARY, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 0.6), (5, 1.0), (5, 0.6), (20, 0.9), (1, 0.5)])
def test_the_support_and_the_shares_are_those_of_transformers(logits, top_k, top_p):
    theirs = logits
    if top_k:
        theirs = TopKLogitsWarper(top_k)(None, theirs)
    if top_p < 1:
        theirs = TopPLogitsWarper(top_p)(None, theirs)
    ours = truncate(logits.log_softmax(-1), top_k, top_p)
    torch.testing.assert_close(ours.exp(), theirs.softmax(-1))


def test_the_nucleus_is_of_what_top_k_left():
    # Of .4 .2 .2 .2 the first two are left, 2/3 and 1/3: the first alone passes .6.
    log_pi = torch.tensor([[0.4, 0.21, 0.2, 0.19]]).log()
    assert truncate(log_pi, 2, 0.6).exp().tolist()[0] == pytest.approx([1, 0, 0, 0])
    assert truncate(log_pi, 0, 0.6).exp().tolist()[0] == pytest.approx([40 / 61, 21 / 61, 0, 0])


def test_log_probs_of_what_is_drawn(logits):
    policy = SimpleNamespace(temperature=0.7, top_k=5, top_p=0.6, replay=False)
    u = torch.rand(ROWS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    token, sampled, own, entropy = draw(policy, logits, u)
    log_pi = (logits / 0.7).log_softmax(-1)
    torch.testing.assert_close(entropy, -(log_pi.exp() * log_pi).sum(-1))
    log_mu = truncate(log_pi, 5, 0.6)
    torch.testing.assert_close(sampled, log_mu.gather(1, token[:, None])[:, 0])
    torch.testing.assert_close(own, log_pi.gather(1, token[:, None])[:, 0])
    assert (sampled >= own).all()


@pytest.mark.parametrize("held", [1, 2**22])
@pytest.mark.parametrize("off", [False, True])
def test_the_entropy_of_a_draw_is_the_policys(held, off, logits, monkeypatch):
    """In blocks of rows, and where the model switches tokens off: 0 log 0 is 0."""
    monkeypatch.setattr("rlzoo.accel.decode.HELD", held)
    logits = logits.clone()
    if off:
        logits[:, 3:] = -torch.inf
    u = torch.rand(ROWS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    policy = SimpleNamespace(temperature=0.7, top_k=0, top_p=1.0, replay=False)
    token, sampled, own, entropy = draw(policy, logits, u)
    by_torch = torch.distributions.Categorical(logits=logits / 0.7)
    log_pi = by_torch.log_prob(token)
    p = by_torch.probs
    torch.testing.assert_close(entropy, torch.special.entr(p).sum(-1))
    torch.testing.assert_close(own, log_pi)
    assert torch.equal(sampled, own)
    greedy = draw(policy, logits, None)
    assert torch.equal(greedy[0], logits.argmax(-1))
    torch.testing.assert_close(greedy[3], entropy)
