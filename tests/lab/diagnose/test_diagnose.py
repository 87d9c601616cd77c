"""`rlzoo diagnose`: what is measured against what is true, and the command as a user meets it."""

import json
import math
import re
import time

import pytest
import torch

import rlzoo
from helpers.diagnosis import SMALL, ask, parse, subject
from rlzoo import RlzooError
from rlzoo.cli import main
from rlzoo.cli.verb import perform
from rlzoo_lab.diagnose import command as diagnose
from rlzoo_lab.diagnose import tables
from rlzoo_lab.kit.oracle import bias
from rlzoo_lab.kit.oracle.bias import gradient, report
from rlzoo_lab.kit.oracle.means import means
from rlzoo_lab.kit.oracle.tree import make_tree
from rlzoo_lab.kit.oracle.worlds import WORLDS, make_world
from rlzoo_lab.view.terminal import rendered

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
    base = (o.pi * means(found).mean).sum(-1)[e.states.clamp(min=0)]
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


@pytest.mark.landing
def test_drawn_batches_average_to_the_expected_gradient(zoo):
    oracle = make_world("outcome", make_tree(4, 3, prompts=2))
    for name in ("mc", "grpo", "gpg"):
        found = subject(zoo, name, oracle, critic="zero")
        if name != "gpg":
            rows, groups = bias._pool(found, 64)
            a = found.among(found.columns, rows, groups)
            drawn = bias._sampled(found, rows, a, 64)
            se = drawn.std(0) / 8
            gap = (drawn.mean(0) - gradient(found, means(found).mean)).abs()
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


def test_one_that_couples_the_batch_is_measured_in_batches_alone(zoo):
    """gpg's factor is one over the share of groups with signal, the same for all in a batch."""
    oracle = make_world("outcome", make_tree(4, 3))
    batch, group = (report(subject(zoo, n, oracle), sizes=(64,)) for n in ("gpg", "dr_grpo"))
    assert batch.cosine is None
    assert batch.b_perp2 is None
    assert group.b_perp2 == pytest.approx(0, abs=1e-20) or group.bias2 > 0
    assert batch.batches[64]["cosine"] == pytest.approx(group.batches[64]["cosine"], abs=0.02)


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_worlds_have_something_to_learn(name, zoo):
    oracle = make_world(name, make_tree(5, 4, prompts=2))
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


@pytest.mark.landing
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
        assert row["cosine"] is None or row["cosine"] <= 1
        assert row["variance"] is None or row["variance"] > -1e-9
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
        ((), "requires recipe=NAME"),
        (("recipe=ppo_gae", "estimator.lamb=0,1"), "estimator.lamb .*gae: .*did you mean 'lam'"),
        (("recipe=ppo_gae", "estimator.lam=0,2", *SMALL), r"must be a float in \[0, 1\]"),
        (("recipe=ppo_gae", "estimator=gea,mc"), "did you mean 'gae'"),
        (("recipe=ppo_gae", "seed=0,1"), "seed=0,1"),
        (("recipe=ppo_gae", "--critic", "exat"), "did you mean 'exact'"),
        (("recipe=ppo_gae", "--world", "dnse"), "did you mean 'dense'"),
        (("recipe=ppo_gae", "--vocabulary", 20), "137,561.*20,000.*Lower --vocabulary"),
        (("recipe=ppo_gae", "--vocabulary", 2), "--vocabulary must be at least 3"),
        (("recipe=grpo", "--samples", 1), "--samples: groups, which grpo compares, need 2"),
        (("recipe=ppo_gae", "--cut", 9), r"--cut must be in \[1, 5\]"),
        (("recipe=ppo_gae", "--batches", "x"), "--batches must be integers"),
        (("no/such/run",), "no such folder"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(words, text):
    with pytest.raises(RlzooError, match=text) as error:
        perform(diagnose, parse(*words))
    assert "\n" not in str(error.value)


def test_a_table_fits_its_terminal_and_keeps_every_row(zoo):
    from rlzoo.format.console import SafeConsole as Console

    document = ask("recipe=ppo_gae", "estimator=gae,gae_length_adaptive,grpo,otb",
                   "--vocabulary", 4, "--horizon", 3)  # fmt: skip
    for width in (80, 140):
        console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
        for part in rendered(tables.blocks(document), console):
            console.print(part)
        lines = console.export_text().splitlines()
        assert max(map(len, lines)) <= width
        text = "\n".join(lines)
        assert "gain@64" in text
        assert "gae_length_adaptive" in text
        text = text.partition("Highest cosine")[0]  # the tables
        assert text.count("noisy") == 2 * text.count(" critic ")  # a table is cut where it must be
        assert "cos@1024" in text


@pytest.mark.parametrize("batches", ["0", "16"])
def test_the_verdict_names_an_estimator_for_each_critic(zoo, batches):
    document = ask("recipe=ppo_gae", "estimator=gae,mc,grpo", "--batches", batches,
                   "--vocabulary", 3, "--horizon", 2)  # fmt: skip
    rows = document["estimators"]
    said = tables.verdict(rows)
    best = {}
    for row in rows:
        for critic in [row["critic"]] if row["critic"] else ["exact", "noisy", "zero"]:
            cosine = (row["batches"].get("16") or row)["cosine"]
            best[critic] = max(best.get(critic, (-2, "")), (cosine, row["estimator"]))
    for critic, (cosine, _) in best.items():
        part = said.partition(f"{critic} critic: ")[2].partition(";")[0]
        assert f"{cosine:.2f}" in part


def test_a_page_has_the_tables_and_the_curves(tmp_path):
    words = ("recipe=ppo_gae", "estimator=gae,rloo", "--vocabulary", 3, "--horizon", 2)
    assert perform(diagnose, parse(*words, "--html", tmp_path / "a.html")) == 0
    page = (tmp_path / "a.html").read_text()
    assert page.count("<svg") == 1
    assert "src=" not in page
    heads = re.findall(r"<th[^>]*>([^<]+)</th>", page)
    assert heads.count("cos@64") == 1
    assert page.count("<polyline") + page.count("<path") >= 4  # gae with each critic, and rloo
    assert perform(diagnose, parse(*words, "--html", tmp_path / "b.html", "--batches", 0)) == 0
    assert "<svg" not in (tmp_path / "b.html").read_text()


@pytest.mark.parametrize(
    ("option", "heir"), [("--plot", "--html FILE"), ("--model", "diagnose RUN --parameters")]
)
def test_an_option_that_is_gone_names_its_heir(option, heir, capsys):
    with pytest.raises(SystemExit):
        main(["diagnose", "ppo_gae", option, "x.svg"])
    assert heir in " ".join(capsys.readouterr().err.split())
