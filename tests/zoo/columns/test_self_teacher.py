"""SDPO: which answer is shown, what the self-teacher then says, and the published loss."""

from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from transformers import GPT2Config, GPT2LMHeadModel

import rlzoo
from helpers.worlds import rolled, world_of
from rlzoo.errors import RecipeError, RlzooError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.supervised.tiny import build_tokenizer, save
from rlzoo_zoo.columns.self_teacher_log_probs import TEMPLATE, encoded, mixed_log_probs, peers

TEACHER = "columns.self_teacher_log_probs"


def test_the_first_other_right_response_of_the_group_is_shown():
    groups = [5, 5, 5, 9, 9, 5, 9]
    right = [False, True, True, False, True, False, False]
    #        1: not itself, so the second; 4 is alone in being right
    assert peers(groups, right) == [1, 2, 1, 4, None, 1, 4]
    assert peers([1, 1], [False, False]) == [None, None]


def test_the_text_is_the_published_one():
    """lasgroup/SDPO's SelfDistillationConfig, its reprompt_template with its solution_template."""
    solution = "\nCorrect solution:\n\n{successful_previous_attempt}\n\n"
    whole = "{prompt}{solution}{feedback}\n\nCorrectly solve the original question.\n"
    said = whole.format(
        prompt="1+1=", solution=solution.format(successful_previous_attempt="2"), feedback=""
    )
    assert TEMPLATE.format(prompt="1+1=", solution="2") == said


def test_in_a_chat_the_last_message_holds_it():
    class Tokenizer:
        def apply_chat_template(self, chat, **how):
            return "|".join(f"{m['role']}:{m['content']}" for m in chat)

        def __call__(self, text, add_special_tokens):
            return {"input_ids": (text, add_special_tokens)}

    messages = [{"role": "system", "content": "Be right."}, {"role": "user", "content": "{1}?"}]
    got = encoded(Tokenizer(), "<templated>", messages, "7", "{solution};{prompt}")
    assert got == ("system:Be right.|user:7;{1}?", False)
    plain = encoded(Tokenizer(), "{1}?", messages[1:], "7", "{solution};{prompt}")
    assert plain == ("7;{1}?", True)


@pytest.fixture(scope="module")
def batches(zoo, model_dir):
    """The world and a batch at each mix: half of all responses count as right."""
    found = {}
    for mix in (0.0, 0.3, 1.0):
        words = [f"model.path={model_dir}", "rollout.prompts=3", "rollout.samples=4",
                 "rollout.max_new_tokens=5", "device=cpu", f"{TEACHER}.mix={mix}",
                 f"{TEACHER}.rows=5", f"{TEACHER}.template='{{solution}};{{prompt}}'",
                 "train.steps=1"]  # fmt: skip
        world = world_of(zoo, words, "sdpo")
        with torch.no_grad():  # the policy has moved on from its reference
            for weight in world.policy.model.parameters():
                weight.add_(0.05 * torch.randn_like(weight))
        world.plan.task.score = lambda responses: torch.tensor(
            [float(len(r) % 2) for r in responses]
        )
        found[mix] = world, rolled(world)
    return found


@pytest.mark.parametrize("mix", [0.0, 0.3, 1.0])
def test_what_it_says_is_read_off_a_plain_pass(batches, mix):
    """A row at a time through transformers' own forward, prompt and answer joined by hand."""
    world, batch = batches[mix]
    right = (batch["sequence_scores"] >= 1).tolist()
    shown = peers(batch["group_ids"].tolist(), right)
    assert any(right)
    assert not all(right)
    assert None in shown or len(set(batch["group_ids"].tolist())) == 3
    for i, peer in enumerate(shown):
        n = int(batch["response_mask"][i].sum())
        got = batch["self_teacher_log_probs"][i, :n]
        assert not batch["self_teacher_log_probs"][i, n:].any()
        if peer is None:
            assert torch.equal(got, batch["old_log_probs"][i, :n])
            continue
        text = f"{batch['responses'][peer]};{batch['prompts'][i]}"
        prompt = torch.tensor(world.policy.tokenizer(text)["input_ids"])
        response = batch["response_ids"][i, :n]
        ids = torch.cat([prompt, response])[None]
        with torch.no_grad():
            logits = [
                m(ids).logits[0, len(prompt) - 1 : -1]
                for m in (world.engine.reference.model, world.policy.model)
            ]
        mixed = (1 - mix) * logits[0] + mix * logits[1]
        want = mixed.log_softmax(-1).gather(-1, response[:, None])[:, 0]
        torch.testing.assert_close(got, want, atol=1e-5, rtol=1e-5)


def test_float64_stays_float64(zoo, model_dir):
    words = [f"model.path={model_dir}", "model.dtype=float64", "rollout.prompts=2", "device=cpu",
             "rollout.max_new_tokens=4", f"{TEACHER}.mix=0.4", "train.steps=1",
             "rollout.temperature=0.7"]  # fmt: skip
    world = world_of(zoo, words, "sdpo")
    batch = rolled(world)
    with torch.no_grad():  # policy and reference are the same: so is their mixture
        got = mixed_log_probs(world.policy, world.engine.reference, batch, 0.4)
        want = world.policy.log_probs(batch)
    assert got.dtype == torch.float64
    mask = batch["response_mask"].bool()
    torch.testing.assert_close(got[mask], want[mask], rtol=0, atol=1e-12)


def published_loss(student, teacher, old, mask, taught, is_clip=2.0):
    """compute_self_distillation_loss of lasgroup/SDPO, written anew: full_logit_distillation=false,
    alpha=1, token-mean."""
    per_token = (student - teacher).detach() * student
    ratio = (student - old).detach().clamp(-20, 20).exp().clamp(max=is_clip)
    where = mask * taught[:, None]
    return (per_token * ratio * where).sum() / where.sum().clamp(min=1)


def test_the_gradient_is_that_of_the_published_loss(zoo, batches):
    """At the first update of a batch, up to the tokens that the mean is over."""
    _, batch = batches[0.3]
    mask, old = batch["response_mask"], batch["old_log_probs"]
    teacher = batch["self_teacher_log_probs"]
    shown = peers(batch["group_ids"].tolist(), (batch["sequence_scores"] >= 1).tolist())
    taught = torch.tensor([peer is not None for peer in shown]).float()
    (want,) = torch.autograd.grad(
        published_loss(p := old.clone().requires_grad_(), teacher, old, mask, taught), p
    )
    columns = {n: batch[n] for n in ("self_teacher_log_probs", "old_log_probs", "response_mask")}
    advantages = zoo.estimators["sdpo"](columns)["advantages"]
    loss = zoo.policy_losses["surrogate"](
        {**columns, "log_probs": (p := old.clone().requires_grad_()), "advantages": advantages}
    )[0]
    (found,) = torch.autograd.grad((loss * mask).sum() / mask.sum(), p)
    torch.testing.assert_close(found * mask.sum(), want * (mask * taught[:, None]).sum())
    assert want.abs().sum() > 0
    assert F.cosine_similarity(found.flatten(), want.flatten(), 0) > 0.999


@pytest.mark.parametrize("template", ["{prompt}", "{prompt}{solution}{hint}", "{prompt}{solution"])
def test_a_template_without_its_fields_is_refused_before_anything_loads(zoo, template, golden):
    with golden.refuses(RecipeError):
        make_plan(compose(["recipe=sdpo", f"{TEACHER}.template='{template}'"], zoo), zoo)


def test_a_prompt_that_the_solution_makes_too_long_is_told(zoo, tmp_path, golden):
    """Prompt and response fit the model; with the published text around a solution they do not."""
    tokenizer = build_tokenizer()
    sizes = {"n_positions": 24, "n_embd": 16, "n_layer": 1, "n_head": 2}
    ends = {"eos_token_id": tokenizer.eos_token_id, "bos_token_id": tokenizer.eos_token_id}
    save(
        GPT2LMHeadModel(GPT2Config(vocab_size=len(tokenizer), **sizes, **ends)), tokenizer, tmp_path
    )
    words = [f"model.path={tmp_path}", "task=addition", "rollout.prompts=2", "rollout.samples=4",
             "rollout.max_new_tokens=5", f"{TEACHER}.success=0", "device=cpu"]  # fmt: skip
    with golden.refuses(RlzooError):
        rlzoo.open_recipe("sdpo", words, zoo=zoo).sample()


@pytest.mark.parametrize("off", [[1], [0, 1]])
def test_a_token_that_a_model_switches_off_stays_off(off):
    """lerp(-inf, x) would be NaN."""
    logits = torch.tensor([[[0.5, -0.2, 0.1], [0.3, 0.4, 0.2]]])  # (1, T + 1, V)
    other = logits.flip(1).clone()
    other[..., off] = -torch.inf
    policy, reference = (
        SimpleNamespace(logits=lambda columns, x=x: x, temperature=0.7) for x in (logits, other)
    )
    columns = {"response_ids": torch.tensor([[2]])}
    found = mixed_log_probs(policy, reference, columns, 0.25)
    mixed = ((0.75 * other + 0.25 * logits) / 0.7)[:, :1]
    free = [i for i in range(3) if i not in off]
    torch.testing.assert_close(found, mixed[..., free].log_softmax(-1)[..., -1])
