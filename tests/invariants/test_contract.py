"""A model proves itself before it trains: odd ones are right, noted in a line, or refused."""

import json
import math

import pytest
import torch

import rlzoo
from helpers.architectures import ENDS, LORA, NEAR, SMALL, columns_of, ragged
from helpers.grids import grid
from helpers.odd_models import save_odd
from helpers.runs import StopAt
from helpers.worlds import changed, step
from rlzoo.accel import recompute
from rlzoo.accel.passes import align
from rlzoo.cli import main
from rlzoo.errors import ModelError
from rlzoo.lm.policy import Policy
from rlzoo.mdp.batch import take
from rlzoo.rollout.sample import collect, draw
from rlzoo.step.trainer import Trainer
from rlzoo.step.update import gradients

CHECKPOINTED = "model.gradient_checkpointing=true"


def some(*names, of):
    """All of the names as parameters; those that are not the first `of` stand before a landing."""
    return grid(names, always=names[:of].__contains__)


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """odd(name, **changes of its config): the folder of one of ODD, made once."""
    made, root = {}, tmp_path_factory.mktemp("odd")

    def folder(name, **changes):
        key = name, *changes.items()
        if key not in made:
            made[key] = save_odd(root / str(len(made)), name, **changes)
        return made[key]

    return folder


def sampled(world):
    return collect(world, draw(world, "train", 4, "train", 0), 4, stream="train", step=0)


# ---------------------------------------------------------------- positions


@pytest.mark.parametrize(
    ("name", "said"),
    [("phi3_longrope", "the 12 positions after which its longrope RoPE depends on other rows"),
     ("llama_dynamic", "the 12 positions after which its dynamic RoPE depends on other rows"),
     ("deepseek_v32", "the 8 keys of index_topk"),
     ("doge", "the 8 keys of keep_window_size"),
     ("mpt", "the model's 24 positions")],
)  # fmt: skip
def test_rows_beyond_what_is_right_in_any_company_are_refused(make, odd, name, said):
    """Beyond it a row's log-probs follow the longest row of its pass, or the model breaks."""
    with pytest.raises(
        ModelError, match=f"rollout.max_new_tokens=20 leaves . of {said} for a prompt"
    ):
        make(odd(name), "rollout.max_new_tokens=20")
    world = make(odd(name), "rollout.max_new_tokens=2")
    ids = torch.full((1, 6), 5)
    with pytest.raises(ModelError, match=f"20 new tokens exceed {said}"):
        world.policy.generate(ids, torch.ones_like(ids), None, 20)
    n = world.policy.limit[0]
    long = columns_of([[5, 6]], [[7] * (n - 1)])
    with pytest.raises(ModelError, match=f"a row of {n + 1} tokens exceeds {said}"):
        world.policy.log_probs(long)


@pytest.mark.parametrize("name", ["phi3_longrope", "llama_dynamic", "deepseek_v32", "doge"])
def test_rows_within_it_are_what_they_are_alone(make, odd, name):
    policy = make(odd(name), "rollout.max_new_tokens=2").policy
    n = policy.limit[0]
    columns = columns_of([[5], [6, 7], [8] * (n - 3)], [[9, 10], [11] * (n - 2), [12, 13, 14]])
    with torch.no_grad():
        alone = torch.cat([policy.log_probs(take(columns, torch.tensor([i]))) for i in range(3)])
        torch.testing.assert_close(policy.log_probs(columns), alone, **NEAR)


# ---------------------------------------------------------------- trees

SMALL_WEIGHTS = {"initializer_range": 0.02}


@pytest.mark.parametrize(
    ("name", "changes"),
    [("llama4", {}), ("doge", {}), ("lfm2", SMALL_WEIGHTS), ("falcon_alibi", {}),
     *(pytest.param(name, changes, marks=pytest.mark.landing) for name, changes in
       [("deepseek_v32", {}), ("jamba", SMALL_WEIGHTS), ("falcon_h1", SMALL_WEIGHTS),
        ("minimax", {}), ("gemma3n", {})])],
    ids=str,
)  # fmt: skip
def test_trees_are_for_plain_full_attention_alone(make, odd, name, changes):
    """Whatever 9 positions of a model with small weights may look like."""
    world = make(odd(name, **changes), "rollout.max_new_tokens=2")
    assert world.policy.traits.no_trees
    prompts, responses, groups = ragged(4, each=2, prompt=(3, 3), response=(2, 4))
    columns = columns_of(prompts, responses, groups=groups)
    assert align(columns, trees=not world.policy.traits.no_trees).place is None


@pytest.mark.parametrize("name", ["phimoe", "mixtral", "persimmon", "opt_350m"])
def test_plain_ones_still_take_them(make, odd, name):
    assert not make(odd(name)).policy.traits.no_trees


def test_a_trial_that_raises_or_disagrees_means_no_trees_and_says_so(make, odd, monkeypatch):
    world = make(odd("falcon_alibi"))
    (note,) = world.engine.notes
    assert "each pass has one row and prompts are not shared, because TypeError" in note
    plain = Policy.run

    def slip(self, rows, *head):
        return plain(self, rows, *head) + (0 if rows.place is None else 0.5)

    monkeypatch.setattr(Policy, "run", slip)
    world = make("llama")
    assert world.policy.traits.no_trees
    assert "logits are off by 0.5" in world.engine.notes[0]


# ---------------------------------------------------------------- gradient checkpointing


@pytest.mark.parametrize(
    "name", some("mixtral", "falcon_alibi", "zamba2", "phimoe", "persimmon", of=2)
)
def test_checkpointing_recomputes_in_the_mode_of_the_forward_pass(make, odd, name):
    """Without router jitter, without dropout, whether layers ask for it or the whole model does."""
    found = []
    for more in ([], [CHECKPOINTED]):
        world = make(odd(name), *more, recipe="grpo")
        columns = columns_of(*ragged(6, response=(2, 6))[:2])
        world.policy.log_probs(columns).sum().backward()
        assert not any(m.training for m in world.policy.model.modules())
        grads = [w.grad for w in world.policy.model.parameters() if w.grad is not None]
        found.append(torch.cat([g.flatten() for g in grads]))
    torch.testing.assert_close(found[1], found[0], atol=1e-5 * found[0].abs().max(), rtol=1e-4)


def test_checkpointing_that_a_model_lacks_or_gets_wrong_is_refused(make, odd, monkeypatch):
    with pytest.raises(ModelError, match="model.gradient_checkpointing: OpenAIGPT.* not support"):
        make(odd("openai_gpt"), CHECKPOINTED)
    calls = []

    def slip(function, *args, **kwargs):
        calls.append(1)
        return function(*args, **kwargs) * (1 + 0.01 * len(calls))

    monkeypatch.setattr(recompute, "_twice", slip)
    with pytest.raises(ModelError, match="model.gradient_checkpointing: .*its gradient is off by"):
        make("llama", CHECKPOINTED)


# ---------------------------------------------------------------- sampling and scoring


@pytest.mark.parametrize("name", some("recurrent_gemma", "rwkv", "zamba2", "nemotron_h", of=1))
def test_a_cache_that_disagrees_is_noted_and_log_probs_are_recomputed(make, odd, name):
    world = make(odd(name), "rollout.max_new_tokens=12", recipe="grpo")
    (note,) = world.engine.notes
    assert "with a cache, sampled log-probs are" in note
    assert "nats from that of a full pass" in world.contract["sampling"]
    batch, metrics = step(world)
    again = make(odd(name), recipe="grpo").policy.log_probs(batch) * batch["response_mask"]
    torch.testing.assert_close(batch["old_log_probs"], again, **NEAR)
    assert metrics["sampler/log_prob_gap"] > 1e-5


@pytest.mark.parametrize("name", ["minimax", "llama4"])
def test_a_model_that_minds_padding_is_sampled_a_length_at_a_time(make, odd, name):
    world = make(odd(name), "rollout.max_new_tokens=20")
    assert world.engine.notes[0].endswith("sensitive to padding, so prompts are grouped by length")
    world = changed(world, eos_ids=ENDS[:2])
    batch = sampled(world)
    assert len(batch["prompt_mask"].sum(1).unique()) > 1
    again = world.policy.log_probs(batch) * batch["response_mask"]
    torch.testing.assert_close(batch["old_log_probs"], again, atol=5e-5, rtol=0)


def test_a_row_that_follows_its_company_is_refused(make, monkeypatch):
    plain = Policy.run

    def slip(self, rows, *head):
        out = plain(self, rows, *head)
        return out + out.mean(0)

    monkeypatch.setattr(Policy, "run", slip)
    with pytest.raises(ModelError, match="a row's log-probs change by .* when the other rows"):
        make("llama")


def test_old_log_probs_look_at_what_passes_compute_in(make):
    kept = {
        words: "old_log_probs" in sampled(make("llama", *words))
        for words in [
            (),
            ("model.dtype=float64",),
            ("model.dtype=bfloat16", "model.autocast=none"),
            ("model.autocast=bfloat16",),
        ]
    }
    assert list(kept.values()) == [True, True, False, False]


def test_the_first_ratio_is_one_in_half_precision_without_autocast(make):
    _, metrics = step(
        make("llama", "model.dtype=bfloat16", "model.autocast=none", "train.minibatches=1",
             "train.epochs=1", "model.lora.rank=2", "model.lora.alpha=8")
    )  # fmt: skip
    assert metrics["actor/ratio_mean"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("extra", [[], ["train.epochs=1", "train.minibatches=1"]], ids=str)
def test_the_gap_to_the_sampler_is_measured(make, monkeypatch, extra):
    """Where old_log_probs are the sampler's own, a slip of the sampler would not show in them."""
    plain = Policy.generate

    def slip(self, *given, **options):
        out = plain(self, *given, **options)
        return out | {n: out[n] - 0.25 for n in ("sampler_log_probs", "old_log_probs")}

    world = make("llama", *extra)
    monkeypatch.setattr(Policy, "generate", slip)
    assert "old_log_probs" in sampled(world)
    _, metrics = step(world)
    assert metrics["sampler/log_prob_gap"] == pytest.approx(0.25, abs=1e-4)


def test_float64_is_never_cast(make):
    columns = columns_of(*ragged(4)[:2])
    plain, cast = (
        make("llama", "model.dtype=float64", f"model.autocast={how}", recipe="grpo").policy
        for how in ("none", "bfloat16")
    )
    assert torch.equal(plain.log_probs(columns), cast.log_probs(columns))
    adapted = make("llama", "model.dtype=float64", *LORA).policy.model
    assert {w.dtype for w in adapted.parameters()} == {torch.float64}


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["llama", "lfm2"])  # by our loop, and by transformers'
def test_logits_that_are_no_numbers_are_never_sampled(make, odd, name, value):
    world = make(odd("lfm2") if name == "lfm2" else name)
    with torch.no_grad():
        world.policy.model.get_output_embeddings().weight[7] = value
    with pytest.raises(ModelError, match="logits are NaN or infinite: response token 0 of row 0"):
        Trainer(world).sample()


def test_a_model_whose_passes_overflow_is_refused(make):
    """Left padding in float64 with eager attention: the mask's minimum is added to itself."""
    words = ["model.dtype=float64", "model.attention=eager"]
    with pytest.raises(ModelError, match="sampling: the model's logits are NaN or infinite"):
        make("gemma2", *words)


# ---------------------------------------------------------------- each learns, or says why not


@pytest.mark.parametrize("name", some("mixtral", "gemma3n", "llama4", "falcon_alibi", "opt_350m",
                                      "minimax", "mpt", "rwkv", of=3))  # fmt: skip
def test_odd_models_take_a_step(make, odd, name):
    _, metrics = step(make(odd(name)))
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["train/skipped"] == 0
    assert metrics["actor/grad_norm"] > 0
    assert metrics["critic/grad_norm"] > 0


@pytest.mark.parametrize("name", ["opt_350m", "llama4"])
def test_a_critic_reads_hidden_states_whatever_the_trunk_is_called(make, odd, name):
    world = make(odd(name))
    head = world.policy.model.get_output_embeddings()
    assert world.engine.critic.head.in_features == head.in_features
    make(odd(name), "critic.trunk=shared")


def test_gemma_3n_caps_its_logits(make, odd):
    world = make(odd("gemma3n"))
    assert world.policy.traits.plain_head
    columns = columns_of(*ragged(3)[:2])
    with torch.no_grad():
        log_pi = world.policy.logits(columns)[:, :-1].log_softmax(-1)
        want = log_pi.gather(-1, columns["response_ids"][..., None])[..., 0]
        found = world.policy.log_probs(columns)
    torch.testing.assert_close(found, want * columns["response_mask"], **NEAR)
    assert world.policy.model.config.final_logit_softcapping == 4.0


@pytest.mark.parametrize("name", ["qwen3_moe", "mixtral"])
def test_experts_compute_in_float64(make, odd, name):
    _, metrics = step(make(odd(name), "model.dtype=float64"))
    assert metrics["actor/grad_norm"] > 0


@pytest.mark.parametrize("name", ["mamba", "nemotron_h"])
def test_float64_that_a_model_does_not_keep_is_refused(make, odd, name):
    with pytest.raises(ModelError, match=r"float64 is not kept|expected|float64") as raised:
        make(odd(name), "model.dtype=float64")
    assert "\n" not in str(raised.value)
    assert "policy_loss" not in str(raised.value)


@pytest.mark.landing
def test_saving_changes_nothing(make, odd, tmp_path):
    """RWKV's weights shrank in place in passes without a gradient, and were saved so."""
    world = make(odd("rwkv"))
    columns = columns_of(*ragged(3)[:2])
    with torch.no_grad():
        before = world.policy.log_probs(columns)
        world.policy.model.save_pretrained(tmp_path)
        world.policy.tokenizer.save_pretrained(tmp_path)
        torch.testing.assert_close(make(tmp_path).policy.log_probs(columns), before, **NEAR)
    gradients(world.engine, world.plan, dict(step(world)[0]), 0.0)


# ---------------------------------------------------------------- where it is said


def test_a_run_records_what_its_model_was_found_to_be(zoo, odd, tmp_path):
    display = StopAt(None)
    words = [f"model.path={odd('falcon_alibi')}", *SMALL, "train.steps=1", f"run.dir={tmp_path}/a"]
    rlzoo.run("grpo", words, zoo=zoo, display=display)
    assert sum("prompts are not shared" in text for text in display.notes) == 1
    found = json.loads((tmp_path / "a" / "summary.json").read_text())["model_contract"]
    assert found["trees"].startswith("TypeError")
    assert list(found) == ["head", "scoring", "trees", "gradient", "sampling"]


def test_the_command_checks_a_model(odd, capsys):
    assert main(["check", f"model={odd('qwen3_moe')}", "device=cpu", "--json"]) == 0
    said = {line["name"]: line for line in json.loads(capsys.readouterr().out)}
    assert {"checkpointing", "sampling", "trees"} <= said.keys()
    assert all(line["passed"] for line in said.values())
    assert main(["check", f"model={odd('zamba2')}", "device=cpu"]) == 1
    assert "nats from that of" in capsys.readouterr().out
    assert main(["check", "model=nope"]) == 2
