"""`rlzoo diagnose`: what is measured against what is true, and the command as a user meets it."""

import argparse
import json
import math
import re
import time

import pytest
import torch

import rlzoo
from helpers.zoo import ZOO
from rlzoo import RlzooError
from rlzoo.oracle import bias
from rlzoo.oracle import means as exact_means
from rlzoo.oracle.bias import expected_gradient, report
from rlzoo.oracle.episodes import enumerate_episodes, make_columns
from rlzoo.oracle.means import EstimatorInWorld, means
from rlzoo.oracle.tree import make_tree
from rlzoo.oracle.worlds import WORLDS, make_critic, make_world
from rlzoo.tools.diagnose import command as diagnose
from rlzoo.tools.diagnose import exact as exact_diagnosis
from rlzoo.tools.diagnose import tables
from rlzoo.tools.verb import perform

STRANGER = '''
from rlzoo import hookimpl


def stranger(rewards, values, response_mask, *, scale: float = 2.0):
    """A reward's surprise.  Source: made up here."""
    return scale * (rewards - values)


def alien(rewards, response_mask, moonlight):
    """Needs what a column plugin of its own makes, of a model."""
    return rewards * moonlight


def moonlight(policy, response_mask):
    """Any."""
    return response_mask


@hookimpl
def register_estimators(register):
    register(stranger)
    register(alien)


@hookimpl
def register_columns(register):
    register(moonlight, shape="BT")
'''


def parse(*words):
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", action="store_true")
    diagnose.add_arguments(parser)
    return parser.parse_intermixed_args([str(w) for w in words])


def ask(*words, zoo=ZOO):
    arguments = parse(*words)
    return exact_diagnosis.diagnose(arguments.words, arguments, zoo)


SMALL = ("--vocabulary", 4, "--horizon", 3, "--batches", "0")


def subject(zoo, name, oracle, *, samples=4, prompts=4, critic="exact", **options):
    episodes = enumerate_episodes(oracle)
    columns = make_columns(oracle, episodes, make_critic(critic, oracle))
    return EstimatorInWorld(zoo.estimators[name], options, oracle, episodes, columns,
                   samples=samples, prompts=prompts)  # fmt: skip


def by_name(document, name, critic=None):
    rows = [r for r in document["estimators"] if r["estimator"] == name]
    return next(r for r in rows if critic in (None, r["critic"]))


# ---------------------------------------------------------------- the numbers


def test_the_report_is_what_its_words_say(zoo):
    """Each number again, from the definition, by a plain sum over the episodes."""
    oracle = make_world("dense", make_tree(4, 3))
    found = subject(zoo, "gae", oracle, critic="noisy", lam=0.5)
    got = report(found)
    e, o = found.episodes, oracle
    a = found(found.columns)
    true = o.advantages[e.states.clamp(min=0), e.actions.clamp(min=0)]
    w = (e.probability[:, None] * e.mask) / (e.probability[:, None] * e.mask).sum()
    assert got.squared_error == pytest.approx(float((w * (a - true) ** 2).sum()), abs=1e-12)
    base = (o.pi * means(found).mean[0]).sum(-1)[e.states.clamp(min=0)]
    agree = (w * true.abs() * ((a - base).sign() == true.sign())).sum() / (w * true.abs()).sum()
    assert got.sign == pytest.approx(float(agree), abs=1e-12)
    assert got.bias2 + got.variance == pytest.approx(got.squared_error, abs=1e-12)
    gradients = torch.zeros(len(e.probability), *o.logits.shape, dtype=torch.float64)
    for row in range(len(e.probability)):
        for t in range(3):
            s, choice = int(e.states[row, t]), int(e.actions[row, t])
            if s >= 0:
                gradients[row, s] -= a[row, t] * o.pi[s]
                gradients[row, s, choice] += a[row, t]
    mean = (e.probability[:, None, None] * gradients).sum(0)
    spread = float((e.probability * (gradients - mean).square().sum((1, 2))).sum())
    star = o.gradient()
    assert got.snr == pytest.approx(float(mean.square().sum()) / spread, rel=1e-9)
    assert got.scale == pytest.approx(float((mean * star).sum() / star.square().sum()), rel=1e-9)
    cosine = float((mean * star).sum() / (mean.norm() * star.norm()))
    assert got.cosine == pytest.approx(cosine, rel=1e-9)


def test_drawn_batches_average_to_the_expected_gradient(zoo):
    oracle = make_world("outcome", make_tree(4, 3, prompts=2))
    for name in ("mc", "grpo", "gpg"):
        found = subject(zoo, name, oracle, critic="zero")
        if name != "gpg":
            rows, groups = bias._pool(found, 64)
            a = found.among(found.columns, rows, groups)
            drawn = bias._sampled(found, rows, a, 64)
            se = drawn.std(0) / 8
            gap = (drawn.mean(0) - expected_gradient(found, means(found))).abs()
            assert float((gap / se.clamp(min=1e-6)).max()) < 5, name
        sizes = report(found, sizes=(16, 1024)).batches
        assert sizes[16]["cosine"] < sizes[1024]["cosine"] <= 1
        assert sizes[16]["gain"] < sizes[1024]["gain"]
        assert 0 < sizes[16]["cosine_se"] < 0.05


def test_a_matched_step_has_its_kl():
    oracle = make_world("graded", make_tree(4, 4))
    directions = torch.stack([oracle.gradient(), oracle.advantages, 0 * oracle.logits])
    steps = bias.matched_step(oracle, directions, 0.01)
    kl = oracle.kl_to(oracle.logits + steps)
    assert torch.allclose(kl, torch.tensor([0.01, 0.01, 0.0], dtype=torch.float64), rtol=1e-4)
    assert bool((oracle.improvement(oracle.logits + steps)[:2] > 0).all())


@pytest.mark.parametrize("name", ["grpo", "rloo", "opo", "maxrl"])
def test_paired_draws_agree_with_the_enumeration(zoo, name, monkeypatch):
    oracle = make_world("outcome", make_tree(4, 3, prompts=2))
    exact = report(subject(zoo, name, oracle))
    monkeypatch.setattr(exact_means, "_all_groups", exact_means._paired)
    drawn = report(subject(zoo, name, oracle))
    assert exact.method == "exact"
    assert "Monte Carlo" in drawn.method
    assert abs(drawn.b_perp2 - exact.b_perp2) <= 4 * drawn.b_perp2_se + 1e-12
    assert abs(drawn.cosine - exact.cosine) <= 4 * drawn.cosine_se + 1e-6
    assert drawn.squared_error == pytest.approx(exact.squared_error, rel=0.5)


def test_the_spread_of_draws_does_not_count_as_bias():
    draw = torch.Generator().manual_seed(0)
    x = 0.5 + torch.randn(2000, 4, 3, generator=draw, dtype=torch.float64)
    weight = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
    found = torch.stack([bias._square(r, weight) for r in x])
    assert abs(float(found.mean()) - 0.25) < 4 * float(found.std()) / 2000**0.5
    error = torch.stack([bias._jackknife(lambda y: y.mean(0), r)[0] for r in x])
    assert float(error.square().mean().sqrt()) == pytest.approx(0.5, rel=0.05)  # 1 / sqrt(4)


def test_pairing_leaves_a_harmless_baseline_harmless(zoo, monkeypatch):
    """What a draw of partners adds to every action alike must not look like bias."""
    monkeypatch.setattr(exact_means, "_all_groups", exact_means._paired)
    found = report(subject(zoo, "rloo", make_world("outcome", make_tree(4, 3))))
    assert found.bias2 > 0.01
    assert abs(found.b_perp2) < 1e-20


def test_one_that_couples_the_batch_tends_to_its_group_form(zoo):
    """gpg's factor is one over the share of groups with signal, the same for all in a batch."""
    oracle = make_world("outcome", make_tree(4, 3))
    batch, group = (report(subject(zoo, n, oracle, prompts=16)) for n in ("gpg", "dr_grpo"))
    assert batch.cosine == pytest.approx(1, abs=1e-3)
    assert 1 < batch.scale / group.scale < 2


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_worlds_have_something_to_learn(name, zoo):
    wide = 3 if name == "words" else 5  # a word of three among five tokens is one in a hundred
    oracle = make_world(name, make_tree(wide, 4, prompts=2))
    assert float(oracle.gradient().norm()) > 0.01
    assert float(oracle.rewards.abs().max()) > 0
    assert name not in {n for shelf in zoo.shelves.values() for n in shelf}


def test_outcomes_are_as_rare_as_they_should_be():
    oracle = make_world("outcome", make_tree(6, 5, prompts=3))
    for found, want in zip(oracle.v[:3].tolist(), (0.3, 0.1, 0.6), strict=True):
        assert want - 0.05 < found <= want


# ---------------------------------------------------------------- the command


def test_swept_options_apply_where_they_are_and_critics_where_they_are_read():
    document = ask("recipe=ppo_gae", "estimator=gae,mc,rloo", "estimator.lam=0,0.5",
                   "--critic", "exact,zero", *SMALL)  # fmt: skip
    rows = [(tables.name_of(r), r["critic"]) for r in document["estimators"]]
    assert rows == [("gae lam=0", "exact"), ("gae lam=0", "zero"), ("gae lam=0.5", "exact"),
                    ("gae lam=0.5", "zero"), ("mc", "exact"), ("mc", "zero"),
                    ("rloo", None)]  # fmt: skip
    assert by_name(document, "mc", "zero")["b_perp2"] < 1e-20
    assert by_name(document, "gae", "zero")["b_perp2"] > 1e-3
    json.dumps(document, allow_nan=False)


@pytest.mark.study
def test_the_whole_zoo_in_time(zoo, capsys):
    torch.set_num_threads(1)
    began = time.process_time()
    document = whole_zoo(zoo, capsys)
    assert (document["world"]["vocabulary"], document["world"]["horizon"]) == (6, 5)
    assert time.process_time() - began < 60


def test_the_whole_zoo(zoo, capsys):
    whole_zoo(zoo, capsys, *SMALL)


def whole_zoo(zoo, capsys, *words):
    """The document about all estimators, each of which is in it and sound."""
    arguments = parse("recipe=ppo_gae", "estimator=all", "--json", *words)
    assert perform(diagnose, arguments) == 0
    document = json.loads(capsys.readouterr().out)
    asked = {r["estimator"] for r in document["estimators"]}
    undone = {r["estimator"]: r["needs"] for r in document["not_diagnosable"]}
    assert asked | set(undone) == set(zoo.estimators)
    assert undone["gigpo"] == ["turn_ids", "state_keys"]
    assert len(asked) >= 18
    for row in document["estimators"]:
        assert all(math.isfinite(x) for x in row.values() if isinstance(x, float)), row
        assert row["cosine"] <= 1
        assert row["variance"] > -1e-9
    return document


def test_a_strangers_estimator_is_measured_like_any(tmp_path):
    file = tmp_path / "stranger.py"
    file.write_text(STRANGER)
    zoo = rlzoo.load_zoo(plugins=[str(file)])
    document = ask("recipe=ppo_gae", "estimator=stranger,alien", "estimator.scale=1,3",
                   "--critic", "zero", *SMALL, zoo=zoo)  # fmt: skip
    one, three = document["estimators"]
    assert three["scale"] == pytest.approx(3 * one["scale"])
    assert document["not_diagnosable"] == [
        {"estimator": "alien", "needs": ["moonlight (which needs policy)"]}
    ]


def test_kl_in_the_reward_changes_the_objective():
    words = ("recipe=ppo_gae", "estimator=mc", "kl.coef=0.5", "--critic", "exact", "--kl", *SMALL)
    assert by_name(ask(*words), "mc")["b_perp2"] < 1e-20
    biased = ask(*words, "kl=k3")
    assert biased["world"]["kl_coef"] == 0.5
    assert by_name(biased, "mc")["b_perp2"] > 1e-4


def test_a_cut_world_follows_the_recipes_truncation():
    words = ("recipe=ppo_gae", "estimator=mc", "--cut", 2, "--critic", "exact", *SMALL)
    assert by_name(ask(*words, "rollout.truncation=bootstrap"), "mc")["b_perp2"] < 1e-20
    biases = []
    for mode in ("zero", "drop", "penalty"):
        found = by_name(ask(*words, f"rollout.truncation={mode}",
                            "rollout.truncation_penalty=1.0"), "mc")  # fmt: skip
        assert found["b_perp2"] > 1e-3, mode
        biases.append((round(found["b_perp2"], 6), round(found["cosine"], 6)))
    assert len(set(biases)) == 3


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ((), "give recipe=NAME"),
        (("recipe=ppo_gae", "estimator.lamb=0,1"), "no option of gae.*did you mean 'lam'"),
        (("recipe=ppo_gae", "estimator.lam=0,2", *SMALL), r"must be a float in \[0, 1\]"),
        (("recipe=ppo_gae", "estimator=gea,mc"), "did you mean 'gae'"),
        (("recipe=ppo_gae", "seed=0,1"), "seed=0,1"),
        (("recipe=ppo_gae", "--critic", "exat"), "did you mean 'exact'"),
        (("recipe=ppo_gae", "--world", "dnse"), "did you mean 'dense'"),
        (("recipe=ppo_gae", "--vocabulary", 20), "137,561.*20,000.*lower --vocabulary"),
        (("recipe=ppo_gae", "--vocabulary", 2), "--vocabulary must be at least 3"),
        (("recipe=ppo_gae", "--samples", 1), "--samples: groups take 2"),
        (("recipe=ppo_gae", "--cut", 9), r"--cut must lie in \[1, 5\]"),
        (("recipe=ppo_gae", "--batches", "x"), "--batches must be integers"),
        (("recipe=ppo_gae", "--plot", "x.gif", *SMALL), r"--plot: must end in .png or .svg"),
        (("no/such/run",), "no such folder"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(words, text):
    with pytest.raises(RlzooError, match=text) as error:
        perform(diagnose, parse(*words))
    assert "\n" not in str(error.value)


def test_a_table_fits_its_terminal_and_keeps_every_row(zoo):
    from rich.console import Console

    document = ask("recipe=ppo_gae", "estimator=gae,gae_length_adaptive,grpo,otb",
                   "--vocabulary", 4, "--horizon", 3)  # fmt: skip
    for width in (80, 140):
        console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        for part in tables.exact_tables(document, width):
            console.print(part)
        lines = console.export_text().splitlines()
        assert max(map(len, lines)) <= width
        text = "\n".join(lines)
        assert "gain@64" in text
        assert ("gae_length_adaptive" in text) == (width == 140)  # a narrow table folds it
        assert text.count("noisy") == 2
        assert ("cos@1024" in text) == (width == 140)


def test_plots_and_page(tmp_path):
    pytest.importorskip("matplotlib")
    files = [tmp_path / name for name in ("a.png", "a.svg", "a.html")]
    words = ("recipe=ppo_gae", "estimator=gae,rloo", "--vocabulary", 3, "--horizon", 2)
    arguments = parse(*words, "--plot", files[0], "--html", files[2])
    assert perform(diagnose, arguments) == 0
    assert perform(diagnose, parse(*words, "--plot", files[1], "--batches", 0)) == 0
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in files[1].read_bytes()
    page = files[2].read_text()
    assert page.count("<svg") == 1
    for variable in set(re.findall(r"var\(--(\w+)\)", page)):
        assert page.count(f"--{variable}:") == 2, variable  # light and dark
    assert "rloo" in page
    assert "src=" not in page
    assert "@import" not in page
    heads = re.findall(r"<th[^>]*>([^<]+)</th>", page)
    explained = re.findall(r"<dt>([^<]+)</dt>", page)
    assert heads.count("cos@64") == 1
    assert not {re.sub(r"@\d+", "@B", head) for head in heads} - {*explained, "estimator", "gain@B"}


def test_no_point_hides_another():
    from rlzoo.tools.diagnose.plot import FLOOR, _beside, draw

    same = [[FLOOR, 0.1], [FLOOR, 0.1], [0.01, 0.1], [FLOOR, 0.1001], [FLOOR, 0.2]]
    assert _beside(same) == [0, 1, 0, 2, 0]
    document = ask("recipe=ppo_gae", "estimator=gae,mc,rloo", "--critic", "exact",
                   "--vocabulary", 3, "--horizon", 2, "--batches", 0)  # fmt: skip
    (axes,) = draw(document).axes
    axes.figure.draw_without_rendering()
    shown = [line.get_transform().transform(line.get_xydata())[0] for line in axes.lines]
    apart = [abs(a - b).max() for i, a in enumerate(shown) for b in shown[:i]]
    assert min(apart) > 5  # in pixels
    assert all(axes.bbox.padded(9).contains(*point) for point in shown)


# ---------------------------------------------------------------- models and runs


def test_a_models_gradient_is_autograd_through_the_model(zoo, words):
    """J of the masked model, differentiated through the network, is g* carried to parameters."""
    from rlzoo.oracle.tree import expected
    from rlzoo.recipe.compose import compose
    from rlzoo.tools.diagnose.model_world import make_model_world

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
    from rlzoo.tools.diagnose.model_world import make_model_world

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
    from rlzoo.tools.diagnose.saved import diagnose_run, load_batch

    _, batch = load_batch(run_folder)
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
    import shutil

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
    from rlzoo.tools.diagnose.checkpoints import diagnose_checkpoints

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
    assert any("--kl counts it here" in note for note in document["notes"])


def test_the_kl_of_a_run_is_from_its_base(trained):
    document = along(trained, "--checkpoints", "--kl", *NARROW)
    base, *later = document["checkpoints"]
    assert base["kl"] == pytest.approx(0, abs=1e-12)
    assert all(stage["kl"] > 0 and stage["kl_coef"] == 0.1 for stage in later)
    assert not document["notes"]


def space_of(zoo, words, *, horizon=3):
    """A world of two prompts, and its plan."""
    from rlzoo.lm.build import build_models
    from rlzoo.recipe.compose import compose
    from rlzoo.recipe.plan import make_plan
    from rlzoo.tools.diagnose import model_world

    plan = make_plan(compose(["recipe=ppo_gae", "task=reverse_dense", *words], zoo), zoo)
    world = build_models(plan)
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
    from rlzoo.tools.diagnose.checkpoints import critic_error

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

    from rlzoo.tools.diagnose.checkpoint_tables import checkpoint_tables

    document = along_trained
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in checkpoint_tables(document, width):
        console.print(part)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    assert text.split().count("own") == 3
    assert text.count("exact") == 3 + text.count("the others are exact")
    assert text.split().count("step") == 6  # three heads, two titles, the KL of a step


def test_a_run_without_a_critic_has_exact_rows_only(tmp_path, words):
    path = tmp_path / "critic_free"
    rlzoo.run("grpo", [*words, "task=reverse_dense", f"run.dir={path}", "checkpoint.keep=1"])
    document = along(path, "--checkpoints", "estimator=gae,grpo", *NARROW)
    assert [stage["step"] for stage in document["checkpoints"]] == [0, 3]
    for stage in document["checkpoints"]:
        assert stage["own_critic"] is None
        assert [r["critic"] for r in stage["estimators"]] == ["exact", None]
    assert "this run has no critic: exact values only" in document["notes"]
    assert any("checkpoint.keep=M keeps more" in note for note in document["notes"])


def test_a_damaged_checkpoint_is_left_out_and_said(trained, tmp_path):
    import shutil

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


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (("--critic", "onw"), "did you mean 'own'"),
        (("estimator=gea",), "did you mean 'gae'"),
        (("more",), "one RUN, then key=value"),
        (("model=tiny",), "does not fit the model"),
        (("--plot", "a.png"), "--plot: not with --checkpoints"),
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
    with pytest.raises(RlzooError, match="must be of exact, noisy, zero"):
        perform(diagnose, parse("recipe=ppo_gae", "--critic", "own"))
