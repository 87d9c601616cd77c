"""The teacher: built where somebody asks for its columns, frozen, and of the policy's tokens."""

import pytest
import torch

import rlzoo
from helpers.micro import with_other_tokenizer
from helpers.runs import StopAt, untimed
from helpers.worlds import rolled, world_of
from rlzoo.errors import ModelError, RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.train.start import open_recipe, resume
from rlzoo_lab.api.preview import estimate
from rlzoo_lab.supervised.tiny import build_model, build_tokenizer, save

WIDER = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
         "num_attention_heads": 2, "max_position_embeddings": 64}  # fmt: skip


@pytest.fixture(scope="module")
def teacher_dir(tmp_path_factory):
    """Another random model than the policy's, wider and deeper, of the same tokenizer."""
    tokenizer, folder = build_tokenizer(), tmp_path_factory.mktemp("teacher")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = build_model(WIDER, tokenizer)
    for weight in model.parameters():
        weight.data.mul_(3)  # random, and sure of something
    save(model, tokenizer, folder)
    return folder


@pytest.fixture
def asked(words, teacher_dir):
    return [*words, f"teacher.path={teacher_dir}"]


def plan_of(zoo, *words):
    return make_plan(compose(list(words), zoo), zoo)


def test_teacher_log_probs_are_its_own_of_the_students_tokens(zoo, asked):
    """By the plain forward pass of transformers, a row at a time, at the policy's temperature."""
    world = world_of(zoo, [*asked, "rollout.temperature=0.7"], "opd")
    batch = rolled(world)
    model = world.engine.teachers[None].model
    assert model.config.hidden_size == 24
    for i in range(batch.rows):
        prompt = batch["prompt_ids"][i][batch["prompt_mask"][i].bool()]
        n = int(batch["response_mask"][i].sum())
        response = batch["response_ids"][i, :n]
        with torch.no_grad():
            logits = model(torch.cat([prompt, response])[None]).logits[0, len(prompt) - 1 : -1]
        want = (logits / 0.7).log_softmax(-1).gather(-1, response[:, None])[:, 0]
        torch.testing.assert_close(batch["teacher_log_probs"][i, :n], want, atol=1e-5, rtol=1e-5)
        assert not batch["teacher_log_probs"][i, n:].any()
    assert "teacher_kl" not in batch
    assert world.engine.reference is None


def test_teacher_kl_is_of_the_whole_vocabulary(zoo, asked):
    world = world_of(zoo, asked, "vopd")
    batch = rolled(world)
    with torch.no_grad():
        ours, theirs = (p.logits(batch)[:, :-1].log_softmax(-1) for p in
                        (world.policy, world.engine.teachers[None]))  # fmt: skip
    mask = batch["response_mask"]
    width = ours.shape[1]
    want = (ours.exp() * (ours - theirs)).sum(-1) * mask[:, :width]
    torch.testing.assert_close(batch["teacher_kl"][:, :width], want, atol=1e-5, rtol=1e-5)
    scored = world.engine.teachers[None].log_probs(batch)
    torch.testing.assert_close(batch["teacher_log_probs"], scored, atol=1e-5, rtol=1e-5)
    assert batch["teacher_kl"].max() > 0.01


def test_what_nobody_asks_for_is_not_built(zoo, asked):
    plan = plan_of(zoo, "recipe=grpo", *asked)
    assert not plan.teacher
    assert any(w.startswith("teacher.path") and "not loaded" in w for w in plan.warnings)
    world = world_of(zoo, asked, "grpo")
    assert None not in world.engine.teachers
    assert not {"teacher_log_probs", "teacher_kl"} & set(rolled(world))


def test_a_penalty_that_asks_for_it_builds_it_too(zoo, asked):
    """On-policy distillation under any estimator: the KL to the teacher in the reward."""
    more = ["kl=teacher_k1", "kl.place=reward", "kl.coef=0.5"]
    batch = rolled(world_of(zoo, [*asked, *more], "rloo"))
    gap = batch["teacher_log_probs"] - batch["old_log_probs"]
    torch.testing.assert_close(batch["rewards"], batch["scores"] + 0.5 * gap)


def test_it_stays_as_it_was(zoo, asked):
    trainer = open_recipe("opd", [*asked, "actor.lr=1e-2"], zoo=zoo)
    before = [w.clone() for w in trainer.world.engine.teachers[None].model.parameters()]
    student = [w.clone() for w in trainer.policy.model.parameters()]
    first = trainer.step()[1]
    assert all(map(torch.equal, before, trainer.world.engine.teachers[None].model.parameters()))
    assert not all(map(torch.equal, student, trainer.policy.model.parameters()))
    for _ in range(10):
        last = trainer.step()[1]
    assert last["actor/teacher_kl"] < first["actor/teacher_kl"]


@pytest.mark.process
def test_a_run_with_a_teacher_goes_on_the_same(zoo, asked, tmp_path):
    rlzoo.run("opd", [*asked, f"run.dir={tmp_path / 'whole'}"], zoo=zoo)
    with pytest.raises(KeyboardInterrupt):
        rlzoo.run("opd", [*asked, f"run.dir={tmp_path / 'cut'}"], zoo=zoo, display=StopAt(2))
    resume(tmp_path / "cut", zoo=zoo)
    assert untimed(tmp_path / "cut") == untimed(tmp_path / "whole")


def test_a_preset_of_a_model_is_a_teacher(zoo, words):
    plan = plan_of(zoo, "recipe=opd", *words, "teacher.name=nano")
    assert plan.recipe.config.teacher.path == "model/nano"
    given = plan_of(zoo, "recipe=opd", *words, "teacher.path=model/tiny")
    assert given.recipe.config.teacher.name is None
    with pytest.raises(RecipeError, match=r"teacher.name .*no model 'nanp'.*nano"):
        plan_of(zoo, "recipe=opd", *words, "teacher.name=nanp")


def test_none_is_refused_before_anything_loads(zoo, words):
    with pytest.raises(RecipeError, match=r"uses 'teacher_log_probs'; give teacher.name"):
        plan_of(zoo, "recipe=grpo", *words, "estimator=opd")


def test_another_tokenizer_is_refused_in_a_line(zoo, words, teacher_dir, tmp_path):
    other = with_other_tokenizer(teacher_dir, tmp_path)
    with pytest.raises(ModelError, match=r"^teacher.path: .* different tokenizers"):
        world_of(zoo, [*words, f"teacher.path={other}"], "opd")


def test_other_widths_of_logits_are_refused_where_the_whole_kl_is_asked_for(
    zoo, words, teacher_dir, tmp_path
):
    tokenizer = build_tokenizer()
    with torch.random.fork_rng():
        model = build_model(WIDER, tokenizer)
    model.resize_token_embeddings(len(tokenizer) + 8)
    save(model, tokenizer, tmp_path)
    asked = [*words, f"teacher.path={tmp_path}"]
    rolled(world_of(zoo, asked, "opd"))  # the tokens that there are
    with pytest.raises(ModelError, match=r"teacher.path: .* has \d+ logits but the policy has \d+"):
        world_of(zoo, asked, "vopd")


@pytest.mark.parametrize(("recipe", "key"), [("opd", "teacher.path"), ("ppo_gae", "critic.init")])
def test_a_model_must_read_all_ids_of_the_policy(zoo, words, teacher_dir, tmp_path, recipe, key):
    """A head with more rows than tokens samples ids that a narrower embedding does not have."""
    tokenizer = build_tokenizer()
    with torch.random.fork_rng():
        model = build_model(WIDER, tokenizer)
    model.resize_token_embeddings(len(tokenizer) + 8)
    save(model, tokenizer, tmp_path)
    with pytest.raises(ModelError, match=rf"^{key}: .* ids, but the policy may sample"):
        world_of(zoo, [*words, f"model.path={tmp_path}", f"{key}={teacher_dir}"], recipe)


def test_memory_counts_the_teachers_weights(zoo, asked, teacher_dir):
    found = estimate(plan_of(zoo, "recipe=opd", *asked))
    items = {item["what"]: item["bytes"] for item in found["items"]}
    world = world_of(zoo, asked, "opd")
    held = sum(w.numel() * w.element_size() for w in world.engine.teachers[None].model.parameters())
    assert items["teacher"] == held
