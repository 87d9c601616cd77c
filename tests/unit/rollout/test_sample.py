"""Rollouts: noise and draws, what was sampled from, padding, masks, recomputed log-probs."""

from dataclasses import replace

import pytest
import torch
from scipy import stats
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from helpers.worlds import favour, make_world, one_thread
from rlzoo.accel.decode import truncate
from rlzoo.lm.policy import Policy
from rlzoo.mdp import noise
from rlzoo.mdp import rules as mdp
from rlzoo.mdp.batch import left_pad
from rlzoo.plugin.component import Example
from rlzoo.rollout.sample import collect, draw
from rlzoo_lab.supervised import tiny as base

LIMIT = 6
WORDS = ["task=addition", f"rollout.max_new_tokens={LIMIT}"]
DIGITS = "0123456789"

one_thread = pytest.fixture(autouse=True, scope="module")(one_thread)


@pytest.fixture
def world(zoo, model_dir):
    """Draws digits and EOS, so that rows end early, at the limit, and in between."""
    world = make_world(zoo, model_dir, *WORDS)
    favour(world.policy, DIGITS, eos=0.5)
    return world


def rows_of(world, n, *, stream="train", step=0):
    return collect(world, draw(world, "train", n, stream, step), 1, stream=stream, step=step)


# ---------------------------------------------------------------- noise


def test_noise_is_a_function_of_seed_stream_step_row_and_position():
    def u(seed=0, stream="s", step=0, rows=(0, 1, 2, 3), length=5):
        return noise.uniforms(seed, stream, step, torch.tensor(rows), length)

    whole = u()
    assert whole.dtype == torch.float64
    assert bool(((whole >= 0) & (whole < 1)).all())
    assert torch.equal(whole, u())
    assert torch.equal(whole[2:3], u(rows=(2,)))  # not of the batch,
    assert torch.equal(whole.flip(0), u(rows=(3, 2, 1, 0)))  # nor its order,
    assert torch.equal(whole, u(length=9)[:, :5])  # nor the length
    others = [u(seed=1), u(stream="t"), u(step=1), u(rows=(4, 5, 6, 7)), whole.roll(1, 1)]
    for i, a in enumerate([whole, *others]):
        for b in [whole, *others][i + 1 :]:
            assert not bool((a == b).any())


def test_noise_is_uniform_and_uncorrelated():
    u = noise.uniforms(3, "sample/train", 17, torch.arange(4000), 5)
    assert stats.kstest(u.flatten().numpy(), "uniform").pvalue > 1e-3
    between = torch.corrcoef(torch.cat([u.T, u.T.roll(1, 1)]))  # of positions, and of rows
    assert (between - torch.eye(10)).abs().max() < 5 / 4000**0.5


def test_prompts_are_a_function_of_seed_stream_and_step(world):
    first = draw(world, "train", 8, "train", 0)
    assert first == draw(world, "train", 8, "train", 0)
    assert first != draw(world, "train", 8, "train", 1)
    assert first != draw(world, "train", 8, "eval", 0)


# ---------------------------------------------------------------- the same row is the same row


def test_a_row_is_the_same_alone_and_among_64(world):
    batch = rows_of(world, 64, step=5)
    assert len(set(batch["prompt_mask"].sum(1).tolist())) > 1  # some rows are padded, some not
    lengths = batch["response_mask"].long().sum(1)
    for i in range(64):
        ids, mask = left_pad(
            [world.prompt_format.encode(batch["prompts"][i])], 0, torch.device("cpu")
        )
        u = noise.uniforms(world.seed, "sample/train", 5, torch.tensor([i]), LIMIT)
        alone = world.policy.generate(ids, mask, u)
        n = int(lengths[i])
        assert torch.equal(alone["response_ids"][0, :n], batch["response_ids"][i, :n])
        for name in ("old_log_probs", "sampler_log_probs"):
            torch.testing.assert_close(alone[name][0, :n], batch[name][i, :n], atol=1e-5, rtol=0)


def test_the_first_rows_do_not_know_of_later_ones(world):
    few, many = (rows_of(world, n) for n in (1, 64))
    n = int(few["response_mask"].sum())
    assert few["prompts"][0] == many["prompts"][0]
    assert torch.equal(few["response_ids"][0, :n], many["response_ids"][0, :n])
    assert few["sequence_scores"][0] == many["sequence_scores"][0]


def test_rows_of_one_prompt_differ_and_steps_differ(world):
    example = [Example("1+1=", "2")]
    batches = [collect(world, example, 16, stream="train", step=step) for step in (0, 1, 0)]
    assert len(set(batches[0]["responses"])) > 4
    assert batches[0]["responses"] != batches[1]["responses"]
    assert batches[0]["responses"] == batches[2]["responses"]
    assert batches[0]["group_ids"].tolist() == [0] * 16


def test_every_token_is_metered(world):
    batch = rows_of(world, 16)
    assert world.engine.meter.tokens == int(batch["response_mask"].sum())


# ---------------------------------------------------------------- what is sampled from


@torch.no_grad()
@pytest.mark.parametrize("temperature", [1.0, 2.0])
@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1.0), (5, 1.0), (0, 0.6), (8, 0.8)])
def test_tokens_are_as_frequent_as_the_sampler_says(world, temperature, top_k, top_p):
    rows = 4000
    policy = replace(world.policy, temperature=temperature, top_k=top_k, top_p=top_p)
    policy.model.lm_head.weight.mul_(2)  # far from uniform
    ids, mask = left_pad([world.prompt_format.encode("12+34=")] * rows, 0, policy.device)
    drawn = policy.generate(ids, mask, noise.uniforms(0, "s", 0, torch.arange(rows), 1))
    token, mu = drawn["response_ids"][:, 0], drawn["sampler_log_probs"][:, 0]
    columns = {"prompt_ids": ids[:1], "prompt_mask": mask[:1], "response_ids": ids[:1, :0]}
    logits = policy.logits({**columns, "response_attention": mask[:1, :0]})
    log_pi = (logits[0, -1] / temperature).log_softmax(-1)
    log_mu = truncate(log_pi[None], top_k, top_p)[0]
    torch.testing.assert_close(mu, log_mu[token], atol=1e-5, rtol=0)
    torch.testing.assert_close(drawn["old_log_probs"][:, 0], log_pi[token], atol=1e-5, rtol=0)

    # What is kept: the k likeliest, and of them no more than it takes to reach p.
    order = log_pi.sort(descending=True).values.exp()[: top_k or None]
    reach = (order / order.sum()).cumsum(0) < top_p
    count = min(len(order), int(reach.sum()) + 1) if top_p < 1 else len(order)
    assert int((log_mu > -torch.inf).sum()) == count
    assert log_mu.exp().sum().item() == pytest.approx(1, abs=1e-5)

    expected = rows * log_mu.exp().double()
    counts = torch.bincount(token, minlength=len(log_mu)).double()
    assert not bool(counts[log_mu == -torch.inf].any())
    likely = expected >= 5
    assert int(likely.sum()) >= 3
    pairs = [
        torch.cat([x[likely], x[~likely].sum()[None]]) for x in (counts, expected)
    ]  # the rare ones in one class
    pairs = [x[pairs[1] > 0] for x in pairs]
    assert stats.chisquare(*(x.numpy() for x in pairs), sum_check=False).pvalue > 1e-3

    # pi / mu: 1 without truncation, and what the truncation left of pi with it.
    ratio = (drawn["old_log_probs"] - drawn["sampler_log_probs"]).exp()
    kept = log_pi.exp()[log_mu > -torch.inf].sum()
    torch.testing.assert_close(ratio, kept.expand_as(ratio), atol=1e-5, rtol=0)
    if top_k == 0 and top_p == 1:
        assert torch.equal(drawn["old_log_probs"], drawn["sampler_log_probs"])
    else:
        assert kept < 0.99


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_recomputed_log_probs_are_those_of_sampling(zoo, model_dir, temperature):
    world = make_world(zoo, model_dir, *WORDS, f"rollout.temperature={temperature}")
    favour(world.policy, DIGITS, eos=0.5)
    batch = rows_of(world, 64)
    mask = batch["response_mask"].bool()
    again = torch.where(mask, world.policy.log_probs(batch), 0)
    torch.testing.assert_close(again, batch["old_log_probs"], atol=1e-4, rtol=0)
    assert bool((batch["old_log_probs"][mask] < 0).all())


# ---------------------------------------------------------------- padding


def llama():
    config = LlamaConfig(
        vocab_size=99, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        pad_token_id=0, eos_token_id=1, initializer_range=0.5,
    )  # fmt: skip
    return LlamaForCausalLM(config)


def gpt2():
    config = GPT2Config(
        vocab_size=99, n_embd=16, n_layer=2, n_head=2, n_positions=64,
        eos_token_id=1, bos_token_id=1, initializer_range=0.5,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


@pytest.mark.parametrize("architecture", [llama, gpt2])
@pytest.mark.parametrize("pad", [0, 1, 40])
def test_left_padding_of_any_width_moves_nothing(architecture, pad):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = Policy.of(architecture().eval(), base.build_tokenizer())
    prompts = [[20, 21, 22, 23, 24], [30, 31], [40]]
    response = torch.tensor([[50, 51, 1], [52, 53, 54], [1, pad, pad]])
    live = torch.tensor([[1.0, 1, 1], [1, 1, 1], [1, 0, 0]])

    def columns(rows, widths):
        room = [[pad] * (width - len(prompts[i])) for i, width in zip(rows, widths, strict=True)]
        ids = [r + prompts[i] for r, i in zip(room, rows, strict=True)]
        mask = [[0.0] * len(r) + [1.0] * len(prompts[i]) for r, i in zip(room, rows, strict=True)]
        return {
            "prompt_ids": torch.tensor(ids),
            "prompt_mask": torch.tensor(mask),
            "response_ids": response[rows],
            "response_attention": live[rows],
        }

    bare = [policy.logits(columns([i], [len(prompts[i])]))[0].log_softmax(-1) for i in range(3)]
    assert (bare[0] - bare[1]).abs().max() > 0.1
    for width in (5, 6, 9, 16):
        padded = policy.logits(columns([0, 1, 2], [width] * 3)).log_softmax(-1)
        for i in range(3):
            n = int(live[i].sum()) + 1
            torch.testing.assert_close(padded[i, :n], bare[i][:n], atol=1e-5, rtol=0)
    u = noise.uniforms(0, "s", 0, torch.arange(3), 4)
    tight, loose = (columns([0, 1, 2], [width] * 3) for width in (5, 13))
    drawn = [policy.generate(c["prompt_ids"], c["prompt_mask"], u) for c in (tight, loose)]
    assert torch.equal(drawn[0]["response_ids"], drawn[1]["response_ids"])
    torch.testing.assert_close(
        drawn[0]["old_log_probs"], drawn[1]["old_log_probs"], atol=1e-5, rtol=0
    )


# ---------------------------------------------------------------- masks and endings


def test_an_episode_ends_at_eos_or_at_the_limit():
    ids = torch.tensor([[5, 1, 7, 1], [1, 1, 1, 1], [5, 6, 7, 8], [5, 6, 7, 2], [5, 0, 7, 8]])
    columns = mdp.episode_columns(ids, [1, 2], 4, 0)
    mask = [[1, 1, 0, 0], [1, 0, 0, 0], [1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 1]]
    assert columns["response_mask"].tolist() == mask
    assert columns["terminated"].tolist() == [True, True, False, True, False]
    assert columns["truncated"].tolist() == [False, False, True, False, True]
    assert columns["response_ids"][0].tolist() == [5, 1, 0, 0]


@pytest.mark.parametrize("pad", [0, 1])
def test_the_eos_that_ends_a_row_is_an_action_even_where_pad_is_eos(pad):
    eos = 1
    ids = torch.tensor([[5, eos, eos, eos], [5, 6, 7, 8]])
    columns = mdp.episode_columns(ids, [eos], 4, pad)
    assert columns["response_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]
    assert columns["response_ids"].tolist() == [[5, eos, pad, pad], [5, 6, 7, 8]]


def test_a_tokenizer_without_pad_samples_the_same_rows(zoo, model_dir, tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    AutoModelForCausalLM.from_pretrained(model_dir).save_pretrained(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(model_dir)
    tokenizer.pad_token = None
    tokenizer.save_pretrained(tmp_path)
    batches = []
    for folder in (model_dir, tmp_path):
        world = make_world(zoo, folder, *WORDS)
        favour(world.policy, DIGITS, eos=0.5)
        assert (world.policy.pad_id in world.policy.eos_ids) == (folder == tmp_path)
        batches.append(rows_of(world, 32))
    padded, shared = batches
    assert padded["terminated"].any()
    assert torch.equal(padded["response_mask"], shared["response_mask"])
    for name in ("old_log_probs", "scores"):
        torch.testing.assert_close(padded[name], shared[name], atol=1e-5, rtol=0)
    assert padded["responses"] == shared["responses"]


@pytest.mark.parametrize("task", ["task=addition task.digits=1", "task=reverse_dense"])
def test_sequence_scores_are_the_sum_of_scores_at_every_length(zoo, model_dir, task):
    world = make_world(zoo, model_dir, *task.split(), "rollout.max_new_tokens=3")
    favour(world.policy, DIGITS if "addition" in task else "abcdef", eos=0.5)
    batch = rows_of(world, 512)
    lengths = batch["response_mask"].sum(1)
    assert set(lengths.tolist()) == {1, 2, 3}
    assert batch["sequence_scores"].abs().sum() > 0
    torch.testing.assert_close(batch["scores"].sum(1), batch["sequence_scores"])
    assert not bool(batch["scores"][batch["response_mask"] == 0].any())
    if "addition" in task:  # an outcome sits at the last action
        at_end = batch["scores"].gather(1, lengths.long()[:, None] - 1).squeeze(1)
        assert torch.equal(at_end, batch["sequence_scores"])
        assert set(at_end.tolist()) == {0.0, 1.0}


def test_an_outcome_is_nothing_before_the_end(world):
    batch = rows_of(world, 8)
    columns = {**batch, "responses": batch["answers"], "terminated": torch.ones(8).bool()}
    columns["truncated"] = torch.zeros(8).bool()
    assert mdp.score(world.plan, columns)["sequence_scores"].tolist() == [1] * 8
    columns["terminated"] = torch.zeros(8).bool()
    assert mdp.score(world.plan, columns)["sequence_scores"].tolist() == [0] * 8


def test_a_ranks_rows_are_numbered_after_those_of_the_ranks_before(monkeypatch):
    """The second of two ranks has prompts 2 and 3, four samples each, rows count from 10."""
    from types import SimpleNamespace

    from rlzoo.accel.engine import Engine
    from rlzoo.accel.passes import Passes
    from rlzoo.accel.ranks import Ranks
    from rlzoo.rollout import sample

    class Reached(Exception):
        pass

    def seen(world, examples, samples, rows):
        assert examples == ["c", "d"]
        raise Reached(*rows.tolist())

    monkeypatch.setattr(sample, "_prompts", seen)
    world = SimpleNamespace(plan=None, policy=None, engine=Engine(None, Passes(None, Ranks(1, 2))))
    sampler = SimpleNamespace(needs=())
    with pytest.raises(Reached) as found:
        sample.collect(world, [*"abcd"], 4, stream="x", step=0, first_row=10, sampler=sampler)
    assert found.value.args == tuple(range(10 + 2 * 4, 10 + 4 * 4))
