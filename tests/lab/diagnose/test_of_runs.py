"""`rlzoo diagnose` of models and of runs: a saved batch, and the checkpoints on the way."""

import json
import math
import shutil

import pytest
import torch

import rlzoo
from helpers.diagnosis import parse, subject
from rlzoo import RlzooError
from rlzoo.cli.verb import perform
from rlzoo.errors import UsageError
from rlzoo_lab.diagnose import command as diagnose
from rlzoo_lab.diagnose import tables
from rlzoo_lab.oracle.episodes import enumerate_episodes
from rlzoo_lab.oracle.tree import make_tree
from rlzoo_lab.oracle.worlds import make_world


def test_a_models_gradient_is_autograd_through_the_model(zoo, words):
    """J of the masked model, differentiated through the network, is g* carried to parameters."""
    from rlzoo.recipe.compose import compose
    from rlzoo_lab.diagnose.model_world import make_model_world
    from rlzoo_lab.oracle.tree import expected

    recipe = compose(["recipe=ppo_gae", "task=reverse_dense", *words], zoo)
    space = make_model_world(recipe, zoo, make_tree(4, 3, prompts=2))
    o = space.oracle
    assert float(o.rewards.max()) > 0
    with torch.enable_grad():
        value = expected(o.tree, space.read().softmax(-1), o.rewards)
        slope = torch.autograd.grad(value, space.weights)
    slope = torch.cat([g.flatten() for g in slope]).double()
    carried = space.gradient(o.gradient())
    assert float((slope - carried).norm() / slope.norm()) < 1e-5
    before = space.read()
    found = subject(zoo, "mc", o)
    numbers = space.measure(found)
    assert numbers["cosine"] == pytest.approx(1, abs=1e-6)
    assert numbers["gain"] == pytest.approx(1, abs=1e-3)
    assert torch.equal(before, space.read())  # the weights are back where they were


def test_the_model_is_read_as_the_rollout_reads_it(zoo, words):
    """Each state's policy is the model's softmax over the allowed tokens, one prefix at a time."""
    from rlzoo.recipe.compose import compose
    from rlzoo_lab.diagnose.model_world import make_model_world

    recipe = compose(
        ["recipe=ppo_gae", "task=reverse_dense", "rollout.temperature=0.7", *words], zoo
    )
    space = make_model_world(recipe, zoo, make_tree(4, 3, prompts=2))
    tokenizer, tree = space.policy.tokenizer, space.oracle.tree
    ids = [tokenizer.convert_tokens_to_ids(t) for t in space.tokens]
    for state in range(0, tree.states, 3):
        prompt = tokenizer(space.prompts[int(tree.prompt[state])])["input_ids"]
        prefix = [ids[t] for t in tree.prefixes[state].tolist() if t >= 0]
        with torch.no_grad():
            logits = space.policy.model(torch.tensor([prompt + prefix])).logits[0, -1]
        want = (logits[ids] / 0.7).double().log_softmax(-1)
        assert torch.allclose(space.oracle.log_pi[state], want, atol=1e-5)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, model_dir):
    path = tmp_path_factory.mktemp("runs") / "one"
    rlzoo.run("ppo_gae", [
        f"model.path={model_dir}", "task=key_door", f"run.dir={path}", "run.save_batches=1",
        "rollout.prompts=4", "rollout.samples=4", "train.steps=1", "train.minibatches=1",
        "eval.samples=8", "device=cpu",
    ])  # fmt: skip
    return path


def test_a_saved_batch_through_many_estimators(run_folder, zoo, capsys):
    assert perform(diagnose, parse(run_folder, "--parameters", "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    rows = [r["estimator"] for r in document["estimators"]]
    assert rows[0] == "gae"  # the run's own comes first
    undone = {r["estimator"] for r in document["not_diagnosable"]}
    assert set(rows) | undone == set(zoo.estimators)
    for key in ("correlation", "gradient_cosine", "parameter_cosine"):
        table = torch.tensor(document[key])
        assert torch.allclose(table, table.T, atol=1e-9)
        assert float(table.abs().max()) <= 1 + 1e-9
    pair = rows.index("dr_grpo"), rows.index("rloo")
    assert document["correlation"][pair[0]][pair[1]] == pytest.approx(1, abs=1e-5)
    assert document["gradient_cosine"][0][rows.index("gae_decoupled")] == pytest.approx(1, abs=1e-5)


def test_a_saved_batch_is_read_with_the_estimators_own_numbers(run_folder, zoo):
    from rlzoo_lab.data.batches import read_batch, saved_batches
    from rlzoo_lab.diagnose.saved import diagnose_run

    batch = read_batch(saved_batches(run_folder)[-1])
    document = diagnose_run(str(run_folder), ["estimator=gae,mc", "estimator.lam=1,0.5"])
    one, half, mc = document["estimators"]
    raw = zoo.estimators["gae"](batch, lam=0.5)["advantages"][batch["response_mask"].bool()]
    assert half["mean"] == pytest.approx(float(raw.mean()), abs=1e-6)
    assert half["variance"] == pytest.approx(float(raw.var(correction=0)), rel=1e-5)
    assert one["variance"] == pytest.approx(mc["variance"], rel=1e-6)
    ours = zoo.estimators["gae"](batch, lam=1.0)["advantages"][batch["response_mask"].bool()]
    true = float(torch.corrcoef(torch.stack([ours, raw]).double())[0, 1])
    assert document["correlation"][0][1] == pytest.approx(true, abs=1e-9)
    assert document["correlation"][0][2] == pytest.approx(1, abs=1e-9)


def test_a_run_without_batches_says_what_to_do(run_folder, tmp_path):
    bare = tmp_path / "bare"
    shutil.copytree(run_folder, bare)
    shutil.rmtree(bare / "batches")
    with pytest.raises(RlzooError, match=r"run.save_batches=1"):
        perform(diagnose, parse(bare))
    (bare / "batches").mkdir()
    (bare / "batches" / "step-00000001.safetensors").write_bytes(b"half")
    with pytest.raises(RlzooError, match="cannot be read"):
        perform(diagnose, parse(bare))


# ---------------------------------------------------------------- a run's checkpoints


NARROW = ("--vocabulary", 4, "--horizon", 3, "--batches", 0)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Four steps, a checkpoint after each second one; the critic learns fast."""
    path = tmp_path_factory.mktemp("runs") / "trained"
    rlzoo.run("ppo_gae", [
        "model=nano", "task=addition", f"run.dir={path}", "train.steps=4", "checkpoint.every=2",
        "checkpoint.keep=5", "rollout.prompts=8", "rollout.samples=4", "train.minibatches=1",
        "eval.samples=8", "device=cpu", "critic.lr=0.01", "kl.coef=0.1",
    ])  # fmt: skip
    return path


def along(*words):
    from rlzoo_lab.diagnose.checkpoints import diagnose_checkpoints

    arguments = parse(*words)
    return diagnose_checkpoints(arguments.words, arguments)


def numbers_of(row):
    return {k: v for k, v in row.items() if k not in ("critic", "shown", "options")}


def test_a_runs_own_critic_at_its_checkpoints(trained, capsys):
    words = (trained, "--checkpoints", "estimator=gae,rloo", "estimator.lam=0,1",
             "--critic", "own,exact,zero", *NARROW)  # fmt: skip
    assert perform(diagnose, parse(*words, "--json")) == 0
    document = json.loads(capsys.readouterr().out)
    assert [stage["step"] for stage in document["checkpoints"]] == [0, 2, 4]
    for stage in document["checkpoints"]:
        rows = {(tables.name_of(r), r["critic"]): r for r in stage["estimators"]}
        assert len(rows) == 7  # rloo reads no critic
        own, exact, zero = (rows["gae lam=0", c] for c in ("own", "exact", "zero"))
        assert exact["b_perp2"] < 1e-20
        assert rows["gae lam=1", "own"]["b_perp2"] < 1e-20
        if stage["step"] == 0:  # the head starts at zero
            assert numbers_of(own) == numbers_of(zero)
            assert stage["own_critic"]["mean"] == 0
            assert stage["own_critic"]["explained_variance"] == 0
            assert stage["kl"] == pytest.approx(0, abs=1e-12)
        else:
            assert own["b_perp2"] > 1e-6
            assert own["b_perp2"] != zero["b_perp2"]
            assert stage["own_critic"]["mean"] != 0
            assert stage["kl"] > 0
        assert 0 < stage["share"] <= 1
    assert any("use --kl to include it here" in note for note in document["notes"])


def test_the_kl_of_a_run_is_from_its_base(trained):
    document = along(trained, "--checkpoints", "--kl", *NARROW)
    base, *later = document["checkpoints"]
    assert base["kl"] == pytest.approx(0, abs=1e-12)
    assert all(stage["kl"] > 0 and stage["kl_coef"] == 0.1 for stage in later)
    assert not document["notes"]


def space_of(zoo, words, *, horizon=3):
    """A world of two prompts, and its plan."""
    from rlzoo.lm.build import build_world
    from rlzoo.recipe.compose import compose
    from rlzoo.recipe.plan import make_plan
    from rlzoo_lab.diagnose import model_world

    plan = make_plan(compose(["recipe=ppo_gae", "task=reverse_dense", *words], zoo), zoo)
    world = build_world(plan)
    tree = make_tree(4, horizon, prompts=2)
    examples = model_world.draw_prompts(plan, world.policy, tree)
    mass = model_world.greedy_mass(world.policy, examples, tree)
    allowed = model_world.likely_tokens(world.policy, mass, tree)
    return world, model_world.make_space(plan, world.policy, tree, examples, allowed)


def test_a_critic_that_says_the_truth_gives_the_exact_rows(zoo, words):
    _, space = space_of(zoo, words)
    o = space.oracle
    tokenizer = space.policy.tokenizer
    ids = [tokenizer.convert_tokens_to_ids(t) for t in space.tokens]
    asked = [tokenizer(p)["input_ids"] for p in space.prompts]
    truth = {}
    for state in range(o.tree.states):
        prefix = [ids[t] for t in o.tree.prefixes[state].tolist() if t >= 0]
        truth[tuple(asked[int(o.tree.prompt[state])] + prefix)] = float(o.v[state])

    class Oracular:
        def values(self, columns):
            out = []
            for prompt, mask, response in zip(
                columns["prompt_ids"].tolist(), columns["prompt_mask"].tolist(),
                columns["response_ids"].tolist(), strict=True,
            ):  # fmt: skip
                start = [i for i, real in zip(prompt, mask, strict=True) if real]
                out.append([truth[tuple(start + response[:n])] for n in range(len(response))])
            return {"values": torch.tensor(out, dtype=torch.float64)}

    found = space.values(Oracular())
    assert torch.equal(found, o.v)


@pytest.mark.parametrize("trunk", ["critic.trunk=own", "critic.trunk=shared"])
def test_the_critic_is_read_as_the_rollout_reads_it(zoo, words, trunk):
    for horizon in (1, 3):
        world, space = space_of(zoo, [*words, trunk], horizon=horizon)
        assert not space.values(world.critic).any()  # the head starts at zero
        with torch.no_grad():
            draw = torch.Generator().manual_seed(0)
            world.critic.head.weight.normal_(generator=draw)
        found, tree = space.values(world.critic), space.oracle.tree
        tokenizer = world.tokenizer
        ids = torch.tensor([tokenizer.convert_tokens_to_ids(t) for t in space.tokens])
        for state in range(tree.states):
            prompt = torch.tensor([tokenizer(space.prompts[int(tree.prompt[state])])["input_ids"]])
            prefix = tree.prefixes[state]
            response = torch.cat([ids[prefix[prefix >= 0]], ids[:1]])[None]
            real = torch.ones_like(response).double()
            values = world.critic.values(
                {"prompt_ids": prompt, "prompt_mask": torch.ones_like(prompt),
                 "response_ids": response, "response_mask": real, "response_attention": real}
            )["values"]  # fmt: skip
            assert float(values[0, -1]) == pytest.approx(float(found[state]), abs=1e-5)


def test_the_critics_error_is_what_its_words_say():
    from rlzoo_lab.diagnose.checkpoints import critic_error

    o = make_world("outcome", make_tree(4, 3))
    exact = critic_error(o, o.v)
    assert (exact["rmse"], exact["explained_variance"]) == (0, 1)
    off = critic_error(o, o.v + 0.3)
    assert off["rmse"] == pytest.approx(0.3)
    assert off["explained_variance"] == pytest.approx(1)
    flat = critic_error(o, torch.zeros_like(o.v))
    assert flat["explained_variance"] == pytest.approx(0, abs=1e-12)
    total = sum(float(d * v * v) for d, v in zip(o.visits, o.v, strict=True))
    assert flat["rmse"] == pytest.approx((total / o.expected_length) ** 0.5)


def test_the_share_is_that_of_whole_episodes_among_the_allowed(zoo, words):
    world, space = space_of(zoo, words)
    tree, total = space.oracle.tree, 0.0
    episodes = enumerate_episodes(space.oracle)
    tokenizer = world.tokenizer
    ids = [tokenizer.convert_tokens_to_ids(t) for t in space.tokens]
    for actions, which in zip(episodes.actions.tolist(), episodes.prompt.tolist(), strict=True):
        prompt = tokenizer(space.prompts[which])["input_ids"]
        response = [ids[a] for a in actions if a >= 0]
        with torch.no_grad():
            logits = world.policy.model(torch.tensor([prompt + response])).logits[0].double()
        log_p = logits.log_softmax(-1)[len(prompt) - 1 :]
        total += math.exp(sum(float(log_p[i, t]) for i, t in enumerate(response)))
    assert space.share() == pytest.approx(total / tree.prompts, abs=1e-6)


@pytest.fixture(scope="module")
def along_trained(trained):
    document = along(trained, "--checkpoints", "estimator=gae,grpo", "estimator.lam=0.95",
                     "--vocabulary", 4, "--horizon", 3)  # fmt: skip
    return document | {"run": "runs/sums"}


@pytest.mark.parametrize("width", [80, 140])
def test_the_table_of_checkpoints_fits_its_terminal(along_trained, width):
    from rich.console import Console

    from rlzoo_lab.diagnose.checkpoint_tables import checkpoint_tables

    document = along_trained
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in checkpoint_tables(document, width):
        console.print(part)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert text.split().count("own") == 3
    assert text.count("exact") == 3 + text.count("the other numbers are exact")
    assert text.split().count("step") == 6  # three heads, two titles, the KL of a step


def test_a_run_without_a_critic_has_exact_rows_only(tmp_path, words):
    path = tmp_path / "critic_free"
    rlzoo.run("grpo", [*words, "task=reverse_dense", f"run.dir={path}", "checkpoint.keep=1"])
    document = along(path, "--checkpoints", "estimator=gae,grpo", *NARROW)
    assert [stage["step"] for stage in document["checkpoints"]] == [0, 3]
    for stage in document["checkpoints"]:
        assert stage["own_critic"] is None
        assert [r["critic"] for r in stage["estimators"]] == ["exact", None]
    assert "this run has no critic, so only exact values are shown" in document["notes"]
    assert any("checkpoint.keep=M to keep more" in note for note in document["notes"])


def test_a_damaged_checkpoint_is_left_out_and_said(trained, tmp_path):
    path = tmp_path / "damaged"
    shutil.copytree(trained, path)
    (path / "checkpoints" / "step-00000002" / "critic.safetensors").write_bytes(b"half")
    document = along(path, "--checkpoints", *NARROW)
    assert [stage["step"] for stage in document["checkpoints"]] == [0, 4]
    assert any("step-00000002 is damaged" in note for note in document["notes"])
    shutil.rmtree(path / "checkpoints" / "step-00000004")
    with pytest.raises(RlzooError, match="is damaged") as error:
        along(path, "--checkpoints", *NARROW)
    assert "\n" not in str(error.value)
    shutil.rmtree(path / "checkpoints")
    with pytest.raises(RlzooError, match=r"no checkpoint; train with checkpoint.every"):
        along(path, "--checkpoints", *NARROW)


@pytest.mark.parametrize("more", [(), ("--checkpoints",), ("--branches", 2)])
@pytest.mark.parametrize("option", ["--plot", "--html"])
def test_a_file_that_no_reading_of_a_run_writes_is_refused(option, more, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.yaml").touch()
    with pytest.raises(UsageError, match=option):
        perform(diagnose, parse(tmp_path / "run", option, tmp_path / "a.png", *more))


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--critic", "onw"), "did you mean 'own'"),
        (("estimator=gea",), "did you mean 'gae'"),
        (("more",), "one RUN, then key=value"),
        (("model=tiny",), "does not fit the model"),
        (("--plot", "a.png"), "--plot: works only with a recipe"),
        (("--fixed-length",), "may always end its response"),
        (("--vocabulary", 30), "too many states"),
        (("--vocabulary", 3, "--horizon", 1), "nothing to learn"),
    ],
)  # fmt: skip
def test_bad_input_about_checkpoints_is_one_line(trained, more, text):
    with pytest.raises(RlzooError, match=text) as error:
        perform(diagnose, parse(trained, "--checkpoints", *more))
    assert "\n" not in str(error.value)


def test_checkpoints_are_a_runs():
    with pytest.raises(RlzooError, match="give a RUN folder first"):
        perform(diagnose, parse("recipe=ppo_gae", "--checkpoints"))
    with pytest.raises(RlzooError, match="must be one of exact, noisy, zero"):
        perform(diagnose, parse("recipe=ppo_gae", "--critic", "own"))
