"""`rlzoo diagnose RUN --branches K`: what branch rollouts say, and what they cost."""

import json
import math
import shutil

import numpy as np
import pytest
import torch
from rich.console import Console

import rlzoo
from rlzoo import RlzooError
from rlzoo.cli import parser_of
from rlzoo.cli.verb import perform
from rlzoo_lab.diagnose import branch_rollouts
from rlzoo_lab.diagnose import command as diagnose
from rlzoo_lab.diagnose.against import against, jackknife
from rlzoo_lab.diagnose.branch_rollouts import choose_tokens
from rlzoo_lab.diagnose.branch_tables import branch_tables
from rlzoo_lab.diagnose.branches import diagnose_branches


def parse(*words):
    parser = parser_of("diagnose")
    return parser.parse_intermixed_args([str(word) for word in words])


def train(folder, recipe, *words):
    rlzoo.run(recipe, [
        "model=nano", f"run.dir={folder}", "rollout.prompts=4", "rollout.samples=4",
        "train.steps=1", "train.minibatches=1", "eval.samples=4", "device=cpu", "run.threads=1",
        *words,
    ])  # fmt: skip
    return str(folder)


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs") / "one", "ppo_gae", "task=addition")


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs") / "two", "ppo_gae", "task=key_door")


@pytest.fixture(scope="module")
def large(run_folder):
    """Groups and branches large enough to tell."""
    words = ["estimator=gae,mc,rloo", "estimator.lam=0.5,1", "rollout.samples=128"]
    return diagnose_branches(run_folder, words, branches=128, states=48)


def test_the_first_states_value_is_the_groups_mean_score(large):
    first = [s for s in large["states"] if s["position"] == 0]
    assert len(first) > 4
    for s in first:
        p = (s["value"] + s["group_score"]) / 2
        assert abs(s["value"] - s["group_score"]) <= 4 * math.sqrt(p * (1 - p) * 2 / 128) + 1e-9
        assert s["interval"][0] <= s["value"] <= s["interval"][1]
    inside = [s["interval"][0] <= s["group_score"] <= s["interval"][1] for s in first]
    assert np.mean(inside) > 0.6  # two means of 128: their difference leaves one's in 17 of 100
    assert large["binary"]


@pytest.mark.parametrize("folder", ["run_folder", "noisy"])
def test_advantages_are_0_on_average(folder, request):
    document = diagnose_branches(
        request.getfixturevalue(folder),
        ["estimator=mc", "rollout.prompts=32", "rollout.samples=2"],
        branches=16,
        states=96,
    )
    told = np.array([s["advantage"] for s in document["states"]])
    assert abs(told.mean()) < 4 * told.std() / math.sqrt(len(told))
    for s in document["states"]:
        assert s["advantage"] == pytest.approx(s["reward"] + s["value_after"] - s["value"])
        assert not s["ended"] or s["value_after"] == 0


def test_returns_are_as_biased_as_their_critic(large):
    """The mean of G - V - A is that of V^ - V: the critic's error, the other way round."""
    by = {r["estimator"]: r for r in large["estimators"]}
    assert abs(by["mc"]["bias"] + large["critic"]["bias"]) < 4 * by["mc"]["bias_se"]
    one = [r for r in large["estimators"] if r["options"].get("lam") == 1.0]
    assert one[0]["squared_error"] == pytest.approx(by["mc"]["squared_error"], abs=1e-5)


def test_two_halves_leave_the_references_noise_out():
    rng = np.random.default_rng(0)
    n, bias, own, reference = 4000, 0.3, 0.5, 1.0
    truth = rng.normal(size=n)
    a = truth + bias + own * rng.normal(size=n)
    first, second = (truth + reference * rng.normal(size=n) for _ in range(2))
    found = against(a, first, second, np.arange(n))
    true = bias**2 + own**2
    assert abs(found["squared_error"] - true) < 4 * found["squared_error_se"]
    assert found["squared_error_se"] < 0.06
    naive = float(((a - (first + second) / 2) ** 2).mean())
    assert naive > true + 0.4  # what one reference would have said: its noise on top
    assert abs(found["bias"] - bias) < 4 * found["bias_se"]
    low, high = found["bias_interval"]
    assert low < bias < high


def test_a_standard_error_is_of_prompts_not_of_their_states():
    rng = np.random.default_rng(1)
    x = rng.normal(size=40)
    mean = lambda v: float(v.mean())  # noqa: E731
    value, se = jackknife(mean, [x], np.arange(40))
    assert (value, se) == (pytest.approx(x.mean()), pytest.approx(x.std(ddof=1) / math.sqrt(40)))
    assert jackknife(mean, [x.repeat(5)], np.arange(40).repeat(5))[1] == pytest.approx(se)
    assert jackknife(mean, [x], np.zeros(40)) == (pytest.approx(x.mean()), None)


def test_states_come_as_often_as_the_policy_visits_them():
    mask = (torch.arange(6) < torch.tensor([6, 6, 3, 1] * 10)[:, None]).float()
    count = torch.zeros_like(mask)
    for seed in range(300):
        row, at = choose_tokens(mask, 20, torch.Generator().manual_seed(seed))
        assert len(set(zip(row.tolist(), at.tolist(), strict=True))) == 20
        wanted = mask.sum(0) * 20 / mask.sum()
        assert bool(((torch.bincount(at, minlength=6) - wanted).abs() < 1.0 + 1e-6).all())
        count[row, at] += 1
    share = count[mask.bool()] / 300
    assert abs(float(share.mean()) - 20 / 160) < 1e-6
    assert float(share.min()) > 0.03
    assert float(share.max()) < 0.25


def test_every_token_is_metered(run_folder, monkeypatch):
    seen = []
    sample = branch_rollouts.respond

    def counted(world, sampler, prompts, rows, **more):
        out = sample(world, sampler, prompts, rows, **more)
        seen.append((rows, int(out["response_mask"].sum())))
        return out

    monkeypatch.setattr(branch_rollouts, "respond", counted)
    document = diagnose_branches(run_folder, ["estimator=mc,remax"], branches=4, states=12)
    tokens = document["tokens"]
    assert tokens["branches"] == sum(n for _, n in seen) > 0
    assert tokens["columns"] > 0  # the greedy responses of a baseline
    assert tokens["all"] == tokens["batch"] + tokens["columns"] + tokens["branches"]
    going_on = sum(not s["ended"] for s in document["states"])
    numbers = torch.cat([rows for rows, _ in seen])
    assert len(numbers) == len(numbers.unique()) == 4 * (12 + going_on)  # noise of their own


def test_branches_start_where_they_should_and_end_where_rows_do(run_folder, monkeypatch):
    starts, ends = {}, []
    sample, score = branch_rollouts.respond, branch_rollouts.mdp.score
    encoded = {}

    def started(world, sampler, prompts, rows, **more):
        starts.update(zip(rows.tolist(), prompts["prompt_mask"].sum(1).tolist(), strict=True))
        encoded["length"] = lambda text: len(world.prompt_format.encode(text))
        return sample(world, sampler, prompts, rows, **more)

    def ended(plan, columns, *given):
        length = columns["response_mask"].sum(1)
        last = columns["response_ids"].gather(1, length.long()[:, None] - 1).squeeze(1)
        ends.append((length, columns["truncated"], columns["terminated"], last))
        return score(plan, columns, *given)

    monkeypatch.setattr(branch_rollouts, "respond", started)
    monkeypatch.setattr(branch_rollouts.mdp, "score", ended)
    words = ["estimator=mc", "rollout.max_new_tokens=3", "rollout.prompts=16"]
    states = diagnose_branches(run_folder, words, branches=4, states=40)["states"]
    wanted = [encoded["length"](s["prompt"]) + s["position"] for s in states]
    wanted += [encoded["length"](s["prompt"]) + s["position"] + 1 for s in states if not s["ended"]]
    assert [starts[4 * i] for i in range(len(wanted))] == wanted
    assert len(starts) == 4 * len(wanted)
    length, truncated, terminated, last = (torch.cat(x) for x in zip(*ends, strict=True))
    assert bool((truncated ^ terminated).all())
    assert bool((length[truncated] == 3).all())
    assert bool((length <= 3).all())
    assert bool(truncated.any())
    assert len(last[terminated].unique()) == 1  # EOS, which no row goes beyond


def test_the_last_token_is_paid_what_its_row_was(large):
    last = [s for s in large["states"] if s["ended"]]
    assert {s["reward"] for s in last} == {0.0, 1.0}
    assert all(s["reward"] == s["score"] for s in last)


def test_chance_before_a_branch_stays_decided(noisy):
    past = torch.rand(3, 4)

    class World:
        seed = 0

    fresh = branch_rollouts._fresh_noise(
        World(), {"noise": past}, torch.arange(3), torch.tensor([0, 2, 4]), 5, 0
    )
    assert torch.equal(fresh[1, :2], past[1, :2])
    assert torch.equal(fresh[2, :4], past[2])
    assert not torch.isclose(fresh[0, :4], past[0]).any()
    assert (fresh[1, 2:] > 0).all()
    document = diagnose_branches(noisy, ["estimator=mc"], branches=8, states=40)
    assert not document["binary"]


def test_without_words_the_zoo_is_asked(run_folder, zoo, capsys):
    words = (run_folder, "--branches", 2, "--states", 6, "--json")
    assert perform(diagnose, parse(*words)) == 0
    document = json.loads(capsys.readouterr().out)
    rows = [r["estimator"] for r in document["estimators"]]
    left = {r["estimator"] for r in document["not_diagnosable"]}
    assert rows[0] == "gae"
    assert set(rows) | left == set(zoo.estimators)
    assert document["kl_in_target"] is False
    assert document["kl_in_training"] is True
    assert document["source"] == "checkpoint of step 1"


def test_a_run_without_a_critic_says_so(tmp_path):
    folder = train(tmp_path / "three", "grpo", "task=addition")
    document = diagnose_branches(folder, ["estimator=grpo,gae"], branches=2, states=4)
    assert [r["estimator"] for r in document["estimators"]] == ["grpo"]
    assert "has no critic" in document["not_diagnosable"][0]["reason"]
    assert document["critic"] is None
    assert document["states"][0]["critic"] is None
    shutil.rmtree(tmp_path / "three" / "checkpoints")
    model = diagnose_branches(folder, ["estimator=grpo"], branches=2, states=4)
    assert model["source"] == "final model"
    with pytest.raises(RlzooError, match="no estimator can be evaluated; gae: needs"):
        diagnose_branches(folder, ["estimator=gae"], branches=2)


@pytest.mark.parametrize("width", [80, 140])
def test_tables_fit_their_terminal(large, width):
    console = Console(width=width, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    for part in branch_tables(large, width):
        console.print(part)
    text = console.export_text()
    assert max(map(len, text.splitlines())) <= width
    for words in (
        "gae lam=0.5",
        "rloo",
        "KL is not part of the target",
        "128 branches",
        "tokens drawn",
    ):
        assert words in text
    assert "…" not in text.split("estimator")[1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--branches", 3], "even"),
        (["--branches", 0], "at least 2"),
        (["--branches", 2, "--states", 1], "at least 2"),
        (["--branches", 2, "--states", 99999, "estimator=mc"], "this batch has .* tokens"),
        (["--states", 4], "give --branches K"),
        (["--branches", 2, "estimator=gea"], "did you mean 'gae'"),
        (["--branches", 2, "gae"], "is not a key=value"),
    ],
)
def test_bad_input_is_one_line(run_folder, words, text):
    with pytest.raises(RlzooError, match=text) as error:
        perform(diagnose, parse(run_folder, *words))
    assert "\n" not in str(error.value)


def test_branches_are_a_runs(tmp_path):
    with pytest.raises(RlzooError, match="give a RUN folder, not a recipe"):
        perform(diagnose, parse("recipe=ppo_gae", "--branches", 4))
    with pytest.raises(RlzooError):
        perform(diagnose, parse(tmp_path / "none", "--branches", 4))
