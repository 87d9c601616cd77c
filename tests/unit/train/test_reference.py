"""References of the KL: the policy that sampled, a moving average, the latest copy."""

import pytest
import torch
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from torch.nn.utils import parameters_to_vector
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from helpers.worlds import make_world
from rlzoo.errors import RecipeError
from rlzoo.lm.policy import Policy
from rlzoo.mdp.batch import Batch
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.sample import collect, draw
from rlzoo.step.columns import add_columns
from rlzoo.step.trainer import Trainer
from rlzoo.step.update import gradients

FIXED = ["task=reverse", "task.fixed=true", "task.letters=2", "task.min_length=2",
         "task.max_length=2", "rollout.ignore_eos=true", "rollout.max_new_tokens=2"]  # fmt: skip
KL = ["kl.place=loss", "kl.coef=0.3", "estimator=grpo", "aggregation=seq_mean_token_sum",
      "rollout.samples=4", "whiten=none"]  # fmt: skip


@pytest.fixture
def of_symbols(tmp_path):
    """Makes a random GPT-2 of exactly these symbols, whose norms keep float64; its folder."""

    def make(symbols, positions=5):
        core = Tokenizer(models.WordLevel({s: i for i, s in enumerate(symbols)}, unk_token="a"))
        core.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
        PreTrainedTokenizerFast(tokenizer_object=core).save_pretrained(tmp_path)
        config = GPT2Config(vocab_size=len(symbols), n_positions=positions, n_embd=8, n_layer=1,
                            n_head=2, bos_token_id=None, eos_token_id=None)  # fmt: skip
        with torch.random.fork_rng():
            torch.manual_seed(0)
            GPT2LMHeadModel(config).save_pretrained(tmp_path)
        return tmp_path

    return make


@pytest.fixture
def three(of_symbols):
    return of_symbols("ab>")


def test_a_model_of_two_symbols_reads_what_rows_begin_with_once(zoo, of_symbols, monkeypatch):
    """Its trial compares unlike prompts, though one of the symbols is its padding: their effect is
    more than rounding."""
    plain = Policy.run

    def rounded(self, rows, *head):
        return plain(self, rows, *head) + (0 if rows.place is None else 1e-7)

    monkeypatch.setattr(Policy, "run", rounded)
    world = make_world(zoo, of_symbols("ab", 6), *FIXED, "task.separator=false")
    assert world.policy.traits.no_trees == ""


def all_responses(world, tokens):
    """A batch of every response of two tokens among `tokens` to one prompt."""
    ids = torch.cartesian_prod(tokens, tokens)
    drawn = collect(world, draw(world, "train", 1, "train", 0), len(ids), stream="train", step=0)
    batch = Batch(torch.ones(ids.shape, dtype=torch.float64))
    batch.update({n: drawn[n] for n in ("prompts", "prompt_ids", "prompt_mask", "group_ids")})
    batch.add("response_ids", ids)
    batch.add("response_attention", batch["response_mask"])
    add_columns(world, batch, stream="train", step=0)
    return batch


def gradient_of(world):
    weights = [p for p in world.policy.model.parameters() if p.requires_grad]
    return torch.cat([torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten()
                      for p in weights])  # fmt: skip


@pytest.mark.parametrize("penalty", ["k1", "k2", "k3"])
def test_the_kl_to_the_rollout_begins_at_0_and_is_exact_later(zoo, three, penalty):
    words = [*FIXED, *KL, f"kl={penalty}", "kl.reference=rollout", "model.dtype=float64"]
    world = make_world(zoo, three, *words)
    assert world.engine.reference is None
    policy = world.policy
    batch = all_responses(world, torch.arange(3))
    assert torch.equal(batch["ref_log_probs"], batch["old_log_probs"])
    batch.add("advantages", torch.zeros_like(batch["response_mask"]))
    gradients(world.engine, world.plan, batch, kl_coef=0.3, names=("actor",))
    first = gradient_of(world).abs().max()  # before the first update
    assert (first < 1e-15) == (penalty != "k1")  # k1 is 0 in expectation only
    log_old = policy.log_prob_stats(batch, want=("log_pi",))["log_pi"].detach()  # (B, T, V)

    with torch.no_grad():  # an update
        for weight in policy.model.parameters():
            weight.add_(torch.randn(weight.shape, dtype=weight.dtype), alpha=0.1)
    policy.model.zero_grad()
    scored = policy.log_prob_stats(batch, want=("log_pi",))
    log_probs, log_pi = scored["log_probs"], scored["log_pi"]
    share = log_probs.detach().sum(1).exp()  # of all responses to the policy
    assert share.sum().item() == pytest.approx(1)
    estimate = (share[:, None] * world.plan.kl({**batch, "log_probs": log_probs})).sum()
    exact = (share * (log_probs - batch["old_log_probs"]).sum(1)).sum()
    if penalty != "k2":  # which is biased
        assert estimate.item() == pytest.approx(exact.item(), rel=1e-9)
    estimate.backward(retain_graph=True)
    found = gradient_of(world)
    policy.model.zero_grad()
    # At the states of the policy: k2 has the gradient of KL(policy, rollout), k3 that of
    # KL(rollout, policy), and k1 none.
    reverse, forward = (log_pi.exp(), log_pi - log_old), (log_old.exp(), log_old - log_pi)
    weights, gap = forward if penalty == "k3" else reverse
    (share[:, None] * (weights * gap).sum(-1)).sum().backward()
    right = 0 * found if penalty == "k1" else gradient_of(world)
    torch.testing.assert_close(found, right, atol=1e-12, rtol=1e-8)
    assert (found.abs().max() > 1e-4) == (penalty != "k1")


def test_one_reference_copies_and_one_averages(zoo, model_dir):
    for words, shares in [(["every", "kl.sync_steps=2"], [0.0, 1.0, 0.0]),
                          (["ema", "kl.sync_mix=0.25"], [0.25, 0.25, 0.25])]:  # fmt: skip
        world = make_world(zoo, model_dir, *FIXED, *KL, "actor.lr=0.01", "rollout.prompts=8",
                           "kl.reference=" + words[0], words[1])  # fmt: skip
        trainer = Trainer(world)
        expected = parameters_to_vector(world.engine.reference.model.parameters())
        for share in shares:
            trainer.step()
            now = parameters_to_vector(world.policy.model.parameters()).detach()
            expected = expected + share * (now - expected)
            found = parameters_to_vector(world.engine.reference.model.parameters())
            torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-6)
            assert not torch.equal(now, expected) or share == 1.0


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (["kl.reference=rollout", "kl.place=reward"], "kl.reference"),
        (["kl.reference=rollout", "kl.place=none"], "kl.reference"),
        (["kl.reference=rollout", "kl.controller=adaptive"], "kl.controller"),
        (["kl.reference=rollout", "stop.max_kl=1"], "stop.max_kl"),
        (["kl.reference=rollout", "kl=full", "kl.place=reward"], "kl.reference"),
        (["kl.reference=every"], "kl.reference"),
        (["kl.reference=ema"], "kl.reference"),
        (["kl.reference=every", "kl.sync_steps=2", "kl.sync_mix=0.5"], "kl.sync_mix"),
        (["kl.sync_steps=2"], "kl.sync_steps"),
        (["kl.reference=every", "kl.sync_steps=2", "model.lora.rank=2"], "kl.reference"),
    ],
)
def test_references_without_effect_are_refused(zoo, words, key):
    with pytest.raises(RecipeError) as error:
        make_plan(compose(["recipe=grpo", *words], zoo), zoo)
    assert key in str(error.value)
