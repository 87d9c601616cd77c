"""Several teachers: each prompt is taught by the teacher of its domain."""

import json

import pytest
import torch

from helpers.micro import with_other_tokenizer
from helpers.worlds import rolled, world_of
from rlzoo.errors import ModelError, RecipeError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo_lab.api.preview import estimate
from rlzoo_lab.supervised.tiny import build_model, build_tokenizer, save

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1,
         "num_attention_heads": 2, "max_position_embeddings": 64}  # fmt: skip


@pytest.fixture(scope="module")
def teachers(tmp_path_factory):
    """Two random models, by the domain that each teaches."""
    tokenizer, folders = build_tokenizer(), {}
    for seed, domain in enumerate(("sum", "word")):
        folders[domain] = tmp_path_factory.mktemp(domain)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = build_model(SIZES, tokenizer)
        for weight in model.parameters():
            weight.data.mul_(3)  # random, and sure of something
        save(model, tokenizer, folders[domain])
    return folders


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Prompts of two domains in turns, and a third of none of them."""
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    of = [("sum", f"{i}+{i}=") for i in range(20)] + [("word", f"{c}>") for c in "abcdefghijklmnop"]
    of += [("rest", f"{i}?") for i in range(20)]
    lines = [json.dumps({"prompt": p, "answer": "1", "domain": d}) for d, p in of]
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def asked(words, rows, teachers):
    words = [w for w in words if not w.startswith("task=")]
    domains = ", ".join(f"{name}: {path}" for name, path in teachers.items())
    return [*words, "task=dataset", f"task.path={rows}", "task.domain=domain",
            "task.test_fraction=0.2", "rollout.max_new_tokens=4", "rollout.prompts=12",
            f"teacher.domains={{{domains}}}", f"teacher.path={words_path(words)}"]  # fmt: skip


def words_path(words):
    """The policy's own folder: a third teacher."""
    return next(w.partition("=")[2] for w in words if w.startswith("model.path="))


def plan_of(zoo, *words):
    return make_plan(compose(["recipe=opd", *words], zoo), zoo)


@pytest.mark.parametrize("recipe", ["opd", "vopd"])
def test_each_row_is_scored_by_the_teacher_of_its_domain(zoo, asked, recipe):
    """As by that teacher alone, row for row: log-probs, and the KL over the whole vocabulary."""
    world = world_of(zoo, asked, recipe)
    batch = rolled(world)
    assert {"sum", "word", "rest"} == set(batch["domains"])
    assert set(world.engine.teachers) == {"sum", "word", None}
    for domain in set(batch["domains"]):
        teacher = world.engine.teachers.get(domain, world.engine.teachers[None])
        rows = torch.tensor([d == domain for d in batch["domains"]])
        alone = teacher.log_probs(batch)
        torch.testing.assert_close(
            batch["teacher_log_probs"][rows], alone[rows], atol=1e-5, rtol=1e-5
        )
        if recipe == "vopd":
            kl = world.policy.full_kl(batch, teacher)["full_kl"]
            torch.testing.assert_close(batch["teacher_kl"][rows], kl[rows], atol=1e-5, rtol=1e-5)
    word = world.engine.teachers["word"].log_probs(batch)
    assert (batch["teacher_log_probs"] - word).abs().max() > 0.1  # they are not alike


def test_memory_counts_each(zoo, asked):
    found = [
        w for i in estimate(plan_of(zoo, *asked))["items"] if (w := i["what"]).startswith("teacher")
    ]
    assert found == ["teacher of sum", "teacher of word", "teacher"]


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("teacher.path=null", r"teacher.domains .*no teacher for rest; give teacher.path"),
        ("teacher.domains={smu: x}", r"teacher.domains .*no prompt has the domain 'smu'.*'sum'"),
        ("teacher.domains={sum: 3}", r"teacher.domains .*sum: must be a folder .*Got 3"),
        ("teacher.domains=x", r"teacher.domains .*must be a mapping or null. Got 'x'"),
        ("task.domain=null", r"teacher.domains .*task 'dataset' does not define domains"),
        ("task.domain=domian", r"domian"),
    ],
)
def test_what_fits_no_prompt_is_refused_in_a_line(zoo, asked, word, said):
    with pytest.raises(RecipeError, match=said):
        plan_of(zoo, *asked, word)


def test_another_tokenizer_of_one_is_refused_by_its_domain(zoo, asked, teachers, tmp_path):
    other = with_other_tokenizer(teachers["sum"], tmp_path)
    with pytest.raises(ModelError, match=r"^teacher.domains: sum: .* different tokenizers"):
        world_of(zoo, [*asked, f"teacher.domains={{sum: {other}}}"], "opd")


def test_none_of_them_loads_where_nobody_asks(zoo, asked):
    plan = make_plan(compose(["recipe=grpo", *asked], zoo), zoo)
    assert plan.teachers == {}
    assert any(w.startswith("teacher.domains") and "not loaded" in w for w in plan.warnings)
