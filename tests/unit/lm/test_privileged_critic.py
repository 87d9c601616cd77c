"""A critic that reads more than the policy: `critic.privileged`."""

import pytest
import torch

from helpers.worlds import hold_trait, rolled, step, world_of
from rlzoo.errors import RecipeError
from rlzoo.lm.prompts import PromptFormat
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.models.tiny import build_tokenizer

TOLD = "critic.privileged=answer"


@pytest.fixture
def sure(words):
    """A critic whose values are not all 0 yet."""

    def make(zoo, *more):
        world = world_of(zoo, [*words, *more])
        with torch.no_grad():
            world.critic.head.weight.fill_(0.1)
        return world

    return make


@pytest.mark.parametrize("trees", [False, True])
def test_it_reads_the_answer_before_the_prompt(zoo, sure, trees, monkeypatch):
    """As the trunk does by itself, row by row; the policy reads what it always read."""
    told, plain = sure(zoo, TOLD), sure(zoo)
    hold_trait(monkeypatch, "no_trees", "" if trees else "rows")
    batch = rolled(told)
    tokens = told.tokenizer
    for i in range(batch.rows):
        prompt = tokens(f"{batch['answers'][i]}\n{batch['prompts'][i]}")["input_ids"]
        n = int(batch["response_mask"][i].sum())
        ids = torch.tensor([prompt + batch["response_ids"][i, :n].tolist()])
        with torch.no_grad():
            hidden = told.critic.trunk(input_ids=ids)[0][0, len(prompt) - 1 : -1]
            want = told.critic.head(hidden)[:, 0]
        torch.testing.assert_close(batch["values"][i, :n], want, atol=1e-5, rtol=1e-4)
    other = rolled(plain)
    assert torch.equal(batch["response_ids"], other["response_ids"])
    assert torch.equal(batch["old_log_probs"], other["old_log_probs"])
    assert not torch.allclose(batch["values"], other["values"])


def test_it_learns_in_micro_batches_as_in_one(zoo, sure):
    """Told prompts have other lengths than the policy's."""
    whole, cut = (step(sure(zoo, TOLD, "actor.entropy_coef=0.1", f"train.microbatch={m}"))[1]
                  for m in (16, 3))  # fmt: skip
    for name in ("critic/vf_loss", "critic/grad_norm", "actor/grad_norm"):
        assert whole[name] == pytest.approx(cut[name], rel=1e-3)


def test_of_a_chat_the_last_message_is_told():
    tokenizer = build_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m.role }}|{{ m.content }}]{% endfor %}"
        "{% if add_generation_prompt %}>{% endif %}"
    )
    form = PromptFormat(tokenizer, system="be brief")
    prompt = [{"role": "user", "content": "2+2"}]
    columns = {
        "prompts": [form.text(prompt)],
        "messages": [form.messages(prompt)],
        "answers": [4],
        "prompt_mask": torch.ones(1, 3),
    }
    ids = form.told(columns)["prompt_ids"][0]
    assert tokenizer.decode(ids) == "[system|be brief][user|4\n2+2]>"


def test_a_shared_trunk_is_refused(zoo, words):
    asked = ["recipe=ppo_gae", *words, TOLD, "critic.trunk=shared"]
    with pytest.raises(RecipeError, match=r"critic.privileged .*critic.trunk=own"):
        make_plan(compose(asked, zoo), zoo)
