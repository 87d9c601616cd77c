"""The bridges without their trainers: what is fed, what is refused, and the lines of a recipe.

That a trainer takes what is said here is tried with the trainers: tests/reference/make_bridges.py.
"""

import sys
from argparse import Namespace
from functools import cache, partial
from importlib import import_module
from importlib.metadata import EntryPoint
from types import ModuleType

import numpy as np
import pytest
import torch

from rlzoo import cli, load_zoo
from rlzoo.errors import ComponentError, RlzooError
from rlzoo.ops import at_last_action, whiten
from rlzoo.plugin.columns import COLUMNS
from rlzoo.recipe.compose import compose
from rlzoo.recipe.files import list_configs
from rlzoo_bridges import calls, columns, command, hosts, prime_rl, rllm, slime
from rlzoo_bridges.hosts import HOSTS, Host, find_host
from rlzoo_bridges.lines import WRITERS, lines
from rlzoo_bridges.proportional import proportional

MASK = torch.tensor([[1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]]).double()
REWARDS = torch.tensor([[0, 0, 9, 1], [2, 9, 9, 9], [0, 0, 0, 3], [9, 0, 1, 9]]).double() * MASK
VALUES = torch.linspace(-1, 1, 16).double().reshape(4, 4)
GROUPS = ["b", "a", "b", "a"]


@pytest.fixture(autouse=True)
def one_zoo(zoo, monkeypatch):
    monkeypatch.setattr(calls, "zoo", lambda: zoo)


def batch(**more):
    own = {
        "rewards": lambda: REWARDS,
        "scores": lambda: REWARDS,
        "response_mask": lambda: MASK,
        "values": lambda: VALUES,
        "group_ids": lambda: columns.numbered(GROUPS),
    }
    return columns.Columns(HOSTS["verl"], own | more)


# ---------------------------------------------------------------- what is fed


def test_what_a_host_says_of_a_column_is_about_a_column(zoo):
    known = {*COLUMNS, *zoo.columns}
    for host in HOSTS.values():
        for part in (host.feeds, host.lacks, host.asks):
            assert set(part) <= known, host.name
        assert not set(host.feeds) & set(host.lacks)
        assert set(host.asks) <= set(host.feeds)
    assert set(hosts.DERIVED) == set(columns.MAKERS)
    assert set(hosts.NOWHERE) <= known


@pytest.mark.parametrize(
    ("host", "estimators", "losses"),
    [
        ("verl", 20, 17),
        ("skyrl", 15, 14),
        ("slime", 17, 0),
        ("trl", 10, 17),
        ("prime-rl", 0, 22),
        ("rllm", 9, 0),
    ],
)
def test_how_much_of_the_zoo_runs_where(zoo, host, estimators, losses):
    """At least what ran there when this was written; who takes something away sees it here."""
    for kind, count in (("estimators", estimators), ("policy_losses", losses)):
        runs = [n for n, c in zoo.shelves[kind].items() if not HOSTS[host].refusal(c, zoo.columns)]
        assert len(runs) >= count, runs


def test_a_refusal_names_the_component_the_column_and_the_reason(zoo):
    text = HOSTS["verl"].refusal(zoo.estimators["gigpo"], zoo.columns)
    assert text.startswith("estimator 'gigpo' (")
    assert "cannot run in verl: it needs 'state_keys' (only rlzoo records keys" in text
    text = HOSTS["verl"].refusal(zoo.estimators["vineppo"], zoo.columns)
    assert "'branch_values', 'branch_steps' (" in text  # once for both
    text = HOSTS["trl"].refusal(zoo.policy_losses["tpo"], zoo.columns)
    assert "'group_ids' (" in text
    assert "uses its own policy loss" in HOSTS["slime"].refusal(
        zoo.policy_losses["gspo"], zoo.columns
    )


def test_a_component_of_ones_own_falls_under_the_same_rule(zoo):
    class Mine:
        kind, name, label, needs = "estimators", "mine", "estimator 'mine' (me.py:1)", ("values",)

    assert HOSTS["verl"].refusal(Mine, zoo.columns) == ""
    assert "it has no critic" in HOSTS["trl"].refusal(Mine, zoo.columns)


OWN_COLUMNS = """
from rlzoo import hookimpl

def surprise(old_log_probs, *, scale: float = 2.0):
    "How unlikely each token was, (B, T) nats.  Source: own."
    return -scale * old_log_probs

def openness(policy, response_mask):
    "A column that only a policy can make.  Source: own."
    return response_mask

def by_surprise(rewards, surprise, response_mask):
    "A_t = r_t + surprise_t.  Source: own."
    return rewards + surprise

def by_openness(rewards, openness, response_mask):
    "A_t = r_t + openness_t.  Source: own."
    return rewards + openness

@hookimpl
def register_columns(register):
    register(surprise, shape="BT")
    register(openness, shape="BT")

@hookimpl
def register_estimators(register):
    register(by_surprise)
    register(by_openness)
"""


def test_a_plugins_own_column_travels_where_the_trainer_has_what_it_is_made_of(
    tmp_path, monkeypatch
):
    (tmp_path / "mine.py").write_text(OWN_COLUMNS)
    zoo = load_zoo([tmp_path / "mine.py"])
    monkeypatch.setattr(calls, "zoo", lambda: zoo)
    old = torch.full_like(MASK, -0.25)
    found = batch(old_log_probs=lambda: old)
    advantages, _ = calls.estimate(HOSTS["verl"], "rlzoo/by_surprise", found, {})
    assert advantages.tolist() == ((REWARDS + 0.5) * MASK).tolist()
    for host in ("verl", "trl"):
        text = HOSTS[host].refusal(zoo.estimators["by_openness"], zoo.columns)
        assert "'openness' (a plugin computes it from 'policy'" in text
    text = HOSTS["trl"].refusal(zoo.estimators["by_surprise"], zoo.columns)
    assert "'surprise' (a plugin computes it from 'old_log_probs'" in text
    told = lines("verl", ["recipe=grpo", "estimator=by_surprise"], zoo).left
    mine, column = [text for text in told if "surprise" in text]
    assert column == "columns surprise: the bridge computes them with their default options"
    assert f"RLZOO_PLUGINS={tmp_path / 'mine.py'} for all" in mine


def test_an_unknown_trainer_is_told(golden):
    with golden.refuses(RlzooError):
        find_host("verk")


def test_which_losses_are_proportional_to_the_advantages(zoo):
    not_so = {n for n, c in zoo.policy_losses.items() if not set(c.needs) - set(hosts.LOSS_COLUMNS)
              and not proportional(c)}  # fmt: skip
    assert {"awr", "dro", "kl_cov"} <= not_so
    assert not {"ppo_clip", "cispo", "gspo", "gmpo", "sapo", "reinforce"} & not_so
    assert "not proportional to them" in HOSTS["skyrl"].refusal(
        zoo.policy_losses["awr"], zoo.columns
    )
    assert (
        HOSTS["trl"].refusal(zoo.policy_losses["awr"], zoo.columns) == ""
    )  # there they come as they are


# ---------------------------------------------------------------- columns and calls


def test_columns_that_follow_from_others():
    found = batch()
    assert found["sequence_rewards"].tolist() == [1, 2, 3, 1]
    assert found["turn_ids"].tolist() == [[1, 1, 0, 2], [1, 0, 0, 0], [1, 1, 1, 1], [0, 1, 1, 0]]
    assert found["bootstrap_values"].tolist() == [0, 0, 0, 0]
    assert found["group_ids"].tolist() == [0, 1, 0, 1]
    assert "state_keys" not in found


def test_what_the_batch_lacks_is_told_with_what_it_takes(golden):
    def values():
        raise KeyError("values")

    with golden.refuses(ComponentError):
        calls.estimate(HOSTS["verl"], "gae", batch(values=values), {})


def test_a_call_is_the_estimator_itself(zoo):
    want = zoo.estimators["gae"](batch(), gamma=0.9, lam=0.5)
    usual = {"gamma": 0.9, "lam": 0.3}
    got = calls.estimate(HOSTS["verl"], "rlzoo/gae", batch(), {"lam": 0.5}, usual)
    assert torch.equal(got[0], want["advantages"])
    assert torch.equal(got[1], want["returns"])
    rloo = calls.estimate(HOSTS["verl"], "rloo", batch(), {}, usual)  # has no option of that name
    assert torch.equal(rloo[0], rloo[1])


@pytest.mark.parametrize("how", ["batch", "group"])
def test_whitening_is_an_option_beside_the_estimator_s(how, golden):
    plain, _ = calls.estimate(HOSTS["verl"], "gae", batch(), {})
    got, returns = calls.estimate(HOSTS["verl"], "gae", batch(), {"whiten": how})
    groups = columns.numbered(GROUPS) if how == "group" else None
    assert torch.equal(got, whiten(plain, MASK, groups, ddof=1))
    assert torch.equal(returns, calls.estimate(HOSTS["verl"], "gae", batch(), {})[1])
    with golden.refuses(ComponentError):
        calls.estimate(HOSTS["verl"], "gae", batch(), {"whiten": "all"})


def test_names_and_options_are_checked(golden):
    with golden.refuses(RlzooError):
        calls.estimate(HOSTS["verl"], "rlzoo/gea", batch(), {})
    with golden.refuses(ComponentError):
        calls.estimate(HOSTS["verl"], "gae", batch(), {"lamb": 0.5})
    with golden.refuses(ComponentError):
        calls.find(HOSTS["trl"], "estimators", "gae")


def test_a_policy_loss_and_its_metrics(zoo):
    x = VALUES * MASK - 1
    old, advantages = x - 0.3 * REWARDS, torch.ones(4, 1).double()
    losses, metrics = calls.lose(HOSTS["trl"], "ppo_clip", x, old, advantages, MASK, {})
    per_token, own = zoo.policy_losses["ppo_clip"](
        {"log_probs": x, "old_log_probs": old, "advantages": advantages.expand(4, 4),
         "response_mask": MASK})  # fmt: skip
    assert torch.equal(losses, per_token)
    assert metrics == {k: pytest.approx((v * MASK).sum().item() / 10) for k, v in own.items()}


# ---------------------------------------------------------------- slime: no package is needed


def rollout(**more):
    ends = [4, 1, 4, 3]
    return {
        "loss_masks": [MASK[i, :n].int() for i, n in enumerate(ends)],
        "values": [VALUES[i, :n] for i, n in enumerate(ends)],
        "kl": [torch.full((n,), 0.5) for n in ends],
        "rewards": [1.0, 2.0, 3.0, 1.0],
        "sample_indices": [2, 0, 3, 1],
        **more,
    }


def slimes(estimator, **more):
    given = {
        "n_samples_per_prompt": 2, "kl_coef": 0.0, "advantage_estimator": "ppo", "gamma": 1.0,
        "rewards_normalization": True, "lambd": 0.5, "rlzoo": {"estimator": estimator},
    }  # fmt: skip
    return Namespace(**given | more)


@pytest.fixture
def one_rank(monkeypatch):
    monkeypatch.setattr(slime, "_ranks", lambda what: 1)


def test_slime_s_lists_are_filled(zoo, one_rank):
    data = rollout()
    slime.advantages(slimes("gae"), data)
    want = zoo.estimators["gae"](batch(), lam=0.5)
    assert [len(x) for x in data["advantages"]] == [4, 1, 4, 3]
    for i, (a, r) in enumerate(zip(data["advantages"], data["returns"], strict=True)):
        assert torch.equal(a, want["advantages"][i, : len(a)])
        assert torch.equal(r, want["returns"][i, : len(r)])


def test_slime_s_kl_and_groups(zoo, one_rank):
    found = slime.columns(slimes("rloo", kl_coef=0.1), rollout())
    assert found["group_ids"].tolist() == [1, 0, 1, 0]
    assert torch.allclose(
        found["sequence_rewards"], torch.tensor([1, 2, 3, 1]) - 0.05 * MASK.sum(1)
    )
    assert found["sequence_scores"].tolist() == [1, 2, 3, 1]  # before KL


@pytest.mark.parametrize(
    "given",
    [
        {"rlzoo": {}},
        {"rlzoo": None},
        {"rlzoo": {"estimator": "gigpo"}},
        {"rlzoo": {"estimator": "rloo"}, "advantage_estimator": "grpo"},
    ],
)
def test_slime_is_refused(one_rank, given, golden):
    with golden.refuses(ComponentError):
        slime.advantages(slimes("gae", **given), rollout())


def test_slime_s_context_parallelism_is_refused(monkeypatch, golden):
    monkeypatch.setattr(slime, "_ranks", lambda what: 2 if "context" in what else 1)
    with golden.refuses(ComponentError):
        slime.advantages(slimes("gae"), rollout())


def test_sizes_that_are_given_are_named_where_they_are_not_carried(zoo):
    for host in ("prime-rl", "rllm"):
        told = lines(host, ["recipe=grpo", "aggregation=token_mean", "actor.lr=3e-6"], zoo).left
        assert any("actor.lr=3e-06: set these with the trainer's own keys" in text for text in told)


# ---------------------------------------------------------------- rLLM: no package is needed


def trajectories(*lengths):
    """A group with a trajectory of one step for each length."""
    return Namespace(
        trajectories=[Namespace(steps=[Namespace(response_ids=[0] * n)]) for n in lengths]
    )


def test_rllms_groups_get_one_number_for_each_trajectory():
    rewards = [np.array([1.0, 0.0, 0.0]), np.array([1.0, 1.0])]
    groups = [trajectories(3, 1, 2), trajectories(2, 2)]
    advantages, returns = rllm.estimate("rloo", rewards, groups, {})
    assert [a.tolist() for a in advantages] == [[1.0, -0.5, -0.5], [0.0, 0.0]]
    assert [r.shape for r in returns] == [(3,), (2,)]


def test_rllms_lengths_reach_the_estimator():
    """opo's baseline weighs by length: (3 * 1 + 1 * 0) / 4; without groups all have one token."""
    rewards = [np.array([1.0, 0.0])]
    [long], _ = rllm.estimate("opo", rewards, [trajectories(3, 1)], {})
    [even], _ = rllm.estimate("opo", rewards, None, {})
    assert long.tolist() == [0.25, -0.75]
    assert even.tolist() == [0.5, -0.5]


def test_rllm_keeps_no_advantages_that_differ_within_a_trajectory(golden):
    groups = [trajectories(3, 2)]
    with golden.refuses(ComponentError):
        rllm.estimate("reinforce", [np.array([1.0, 0.0])], groups, {"gamma": 0.5})


# ---------------------------------------------------------------- prime-rl: its LossOutputs


@pytest.fixture
def primes(monkeypatch):
    """prime-rl's module of losses, with its class of results."""
    for name in ("prime_rl", "prime_rl.trainer", "prime_rl.trainer.rl", "prime_rl.trainer.rl.loss"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    sys.modules["prime_rl.trainer.rl.loss"].LossOutputs = Namespace

    def call(row, ref=None, weights=None, **kwargs):
        inputs = Namespace(
            trainer_logprobs=VALUES[row] - 1, inference_logprobs=VALUES[row] - 1.1,
            ref_logprobs=ref, advantages=REWARDS[row], loss_mask=MASK[row].bool(),
            loss_weights=weights,
        )  # fmt: skip
        return prime_rl.policy_loss(inputs, **kwargs)

    return call


def test_prime_rls_loss_is_the_sum_over_the_mask(primes):
    found = primes(0, loss="surrogate")
    ratio = torch.tensor(0.1).double().exp()
    assert found.loss.item() == pytest.approx(-ratio.item())  # the rewards on the mask add up to 1
    assert all(isinstance(x, torch.Tensor) for x in found.metrics.values())
    half = primes(0, loss="surrogate", weights=torch.full((4,), 0.5))
    assert half.loss.item() == pytest.approx(found.loss.item() / 2)


def test_prime_rls_kl_needs_a_reference(primes, golden):
    plain = primes(2, loss="ppo_clip").loss
    kl = primes(2, ref=VALUES[2] - 1.5, loss="ppo_clip", kl="k1", kl_coef=0.1).loss
    assert (kl - plain).item() == pytest.approx(0.1 * 4 * 0.5)
    with golden.refuses(ComponentError):
        primes(2, loss="ppo_clip", kl="k1", kl_coef=0.1)


def test_prime_rl_has_losses_and_no_estimators(primes, zoo, golden):
    with golden.refuses(ComponentError):
        primes(0, loss="kl_cov")
    assert "its own advantages" in HOSTS["prime-rl"].refusal(zoo.estimators["grpo"], zoo.columns)


# ---------------------------------------------------------------- verl: its functions stand in


@pytest.fixture
def verl(monkeypatch):
    """The bridge's module, on verl's names alone."""
    found = {name: ModuleType(name) for name in (
        "verl", "verl.trainer", "verl.trainer.ppo", "verl.trainer.ppo.core_algos",
        "verl.workers", "verl.workers.config")}  # fmt: skip
    core = found["verl.trainer.ppo"].core_algos = found["verl.trainer.ppo.core_algos"]
    core.register_adv_est = core.register_policy_loss = lambda name: lambda f: f
    found["verl.workers.config"].PolicyLossConfig = object
    for name, module in found.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(sys, "argv", ["verl"])
    monkeypatch.delitem(sys.modules, "rlzoo_bridges.verl", raising=False)
    yield import_module("rlzoo_bridges.verl")
    del sys.modules["rlzoo_bridges.verl"]


def compute_advantage(verl, name, data, **more):
    """As verl's function of that name calls an estimator: with a part of its local `data`."""
    given = {"token_level_rewards": data.batch["token_level_rewards"],
             "response_mask": data.batch["response_mask"]}  # fmt: skip
    return partial(verl.estimate, name)(**given, index=data.non_tensor_batch["uid"], **more)


def for_multi_trajectories(verl, name, data, batch_keys):
    """As verl's V1 trainer calls that."""
    return compute_advantage(verl, name, data)


def sessions():
    """Prompt p: session 0 of two outputs, scored 0 and 1, session 1 of one scored 0; q: 1, 0."""
    scores = torch.tensor([0.0, 0, 1, 1, 0]).double()
    mask = torch.tensor([[1, 1, 0], [0, 1, 1], [1, 1, 1], [1, 0, 0], [1, 1, 1]]).double()
    keys = ["p_0_0", "p_1_0", "p_0_1", "q_0_0", "q_1_0"]
    data = Namespace(
        batch={"token_level_rewards": at_last_action(scores, mask), "response_mask": mask,
               "values": mask / 2},
        non_tensor_batch={"uid": ["p", "p", "p", "q", "q"]},
    )  # fmt: skip
    return data, keys, mask


def test_a_session_s_last_output_stands_for_it(verl):
    data, keys, mask = sessions()
    got, returns = for_multi_trajectories(verl, "rlzoo/grpo", data, keys)
    each = torch.tensor([1, -1, 1, 1, -1]).double() * 0.5 / (0.5**0.5 + 1e-6)
    torch.testing.assert_close(got, each[:, None] * mask)
    assert torch.equal(got, returns)
    alone, _ = compute_advantage(verl, "rlzoo/grpo", data)  # of a trainer without sessions
    assert alone[0, 0] < 0


def test_what_compares_no_outputs_takes_them_all(verl):
    data, keys, _ = sessions()
    got = for_multi_trajectories(verl, "rlzoo/gae", data, keys)
    want = compute_advantage(verl, "rlzoo/gae", data)
    assert all(map(torch.equal, got, want))


def test_last_outputs_are_found_by_number_not_by_text():
    keys = ["a_b_0_9", "a_b_0_10", "a_b_1_0", "c_0_0"]
    assert columns.last_outputs(keys) == ([1, 2, 3], [0, 0, 1, 2])
    assert columns.last_outputs([]) == ([], [])


def test_a_loss_over_a_mini_batch_is_told_once(caplog, monkeypatch):
    calls._once.cache_clear()
    for _ in range(2):
        calls.find(HOSTS["trl"], "policy_losses", "kl_cov")
        calls.find(HOSTS["trl"], "policy_losses", "ppo_clip")
    (record,) = caplog.records
    assert "'kl_cov'" in record.message
    assert "TRL" in record.message


# ---------------------------------------------------------------- the lines of a recipe


def test_every_recipe_has_its_lines_or_a_reason(zoo, monkeypatch):
    """In each trainer; a recipe that runs there asks for a component that runs there."""
    once = cache(lambda word: compose([word], zoo))
    monkeypatch.setattr("rlzoo_bridges.lines.compose", lambda words, zoo: once(*words))
    for host in WRITERS:
        ran, reasons = 0, []
        for recipe in list_configs("recipes"):
            try:
                found = lines(host, [f"recipe={recipe}"], zoo)
            except RlzooError as error:
                reasons.append(str(error))
                continue
            ran += 1
            assert found.text.endswith((*found.words[-1:], "train.py", "@ rlzoo.toml"))
        assert ran >= 10, host
        others = [why for why in reasons if HOSTS[host].title not in why]
        assert [why for why in others if not why.startswith("teacher: ")] == []  # to be named first


def test_the_lines_of_a_recipe_in_verl(zoo):
    words = lines("verl", ["recipe=vc_ppo", "estimator.lam_actor=.9", "kl.coef=.02"], zoo).words
    for word in (
        "algorithm.adv_estimator=rlzoo/gae_decoupled",
        "+algorithm.rlzoo.lam_actor=0.9",
        "+algorithm.rlzoo.whiten=batch",
        "critic.enable=true",
        "actor_rollout_ref.actor.policy_loss.loss_mode=rlzoo/ppo_clip",
        "actor_rollout_ref.actor.loss_agg_mode=token-mean",
        "algorithm.use_kl_in_reward=true",
        "algorithm.kl_ctrl.kl_coef=0.02",
    ):
        assert word in words
    grpo = lines("verl", ["recipe=grpo"], zoo).words
    assert "critic.enable=false" in grpo
    assert "actor_rollout_ref.actor.kl_loss_type=low_var_kl" in grpo


SIZES = {
    "verl": ("batch_size=", "max_response_length=", "rollout.n=", "mini_batch", "optim.lr="),
    "skyrl": ("batch_size=", "max_generate_length=", "n_samples_per", "mini_batch", "config.lr="),
    "slime": ("--rollout-batch", "--rollout-max", "--n-samples", "--global-batch", "--lr"),
    "trl": ("num_generations=", "max_completion", "train_batch_size", "learning_rate="),
}


@pytest.mark.parametrize("host", SIZES)
def test_sizes_of_small_models_are_not_carried_over(zoo, host):
    """A preset's and a default's are neither the recipe's nor the reader's."""
    found = lines(host, ["recipe=grpo", "model=qwen2.5-0.5b", "estimator=reinforce"], zoo)
    assert not [size for size in SIZES[host] if size in found.text]
    (text,) = [x for x in found.left if "rollout.prompts=64" in x]
    for size in ("max_new_tokens=5", "samples=4", "minibatches=4", "actor.lr=1e-06"):
        assert size in text
    grouped = lines(host, ["recipe=grpo", "model=qwen2.5-0.5b"], zoo)
    kept = [size for size in SIZES[host] if size in grouped.text]
    assert len(kept) == 1, "an estimator of groups keeps their size"
    assert {x for x in SIZES[host] if "n=" in x or "samples" in x or "generations" in x} == {*kept}
    words = ["recipe=grpo", "rollout.prompts=96", "rollout.samples=8", "train.minibatches=3",
             "rollout.max_new_tokens=777", "actor.lr=3e-6"]  # fmt: skip
    said = lines(host, words, zoo)
    for size in SIZES[host]:
        assert size in said.text
    step = "256" if host in ("slime", "trl") else "32"  # rows, prompts
    for value in ("777", "3e-06", step):
        assert value in said.text
    assert not any("rollout.prompts" in x for x in said.left)


def test_the_recipe_s_own_sizes_are_carried_over(zoo):
    found = lines("trl", ["recipe=gpg"], zoo)  # one step per batch
    assert "steps_per_generation=1," in found.text
    (text,) = [x for x in found.left if "rollout.prompts=" in x]
    assert "minibatches" not in text


@pytest.mark.parametrize(
    ("host", "word", "given"),
    [
        ("verl", "loss_scale_factor=${data.max_response_length}", "loss_scale_factor=99"),
        ("skyrl", "max_seq_len=LENGTH", "max_seq_len=99"),
    ],
)
def test_a_loss_divided_by_the_limit_of_a_response_follows_it(zoo, host, word, given):
    assert any(w.endswith(word) for w in lines(host, ["recipe=dr_grpo"], zoo).words)
    found = lines(host, ["recipe=dr_grpo", "rollout.max_new_tokens=99"], zoo)
    assert any(w.endswith(given) for w in found.words)
    found = lines(host, ["recipe=dr_grpo", "aggregation.length=99"], zoo)
    assert any(w.endswith(given) for w in found.words)


def test_a_loss_over_a_mini_batch_is_said(zoo):
    for host in ("verl", "trl"):
        left = lines(host, ["recipe=dapo", "policy_loss=kl_cov"], zoo).left
        assert any("policy_loss=kl_cov" in x for x in left), host
        assert not any("policy_loss" in x for x in lines(host, ["recipe=dapo"], zoo).left)


@pytest.mark.parametrize(
    ("host", "recipe"),
    [
        ("verl", "gigpo"),
        ("skyrl", "rloo"),
        ("slime", "gmpo"),
        ("trl", "rloo"),
        ("trl", "ppo_gae"),
    ],
)
def test_a_recipe_that_cannot_run_there(zoo, host, recipe, golden):
    with golden.refuses(RlzooError):
        lines(host, [f"recipe={recipe}"], zoo)


def test_the_table_and_the_document():
    result = command.show("verl", [], load_zoo())
    text = "\n".join(result.view(None))
    assert "20 estimators: " in text or "estimators: " in text
    assert result.document["estimators"]["gae"] == ""
    assert "state_keys" in result.document["estimators"]["gigpo"]


# ---------------------------------------------------------------- a verb that a plugin brings


def test_a_verb_comes_by_its_entry_point(monkeypatch, capsys):
    point = EntryPoint("mine", "rlzoo_lab.table:show", "rlzoo.verbs")
    monkeypatch.setattr(cli, "brought", lambda: {"mine": point})
    assert cli.main(["mine", "recipe=grpo", "--for", "skyrl"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("python -m rlzoo_bridges.skyrl \\\n")
    assert "not transferred: model, data" in err
    with pytest.raises(SystemExit):
        cli.parse(["--help"])
    assert "mine" in capsys.readouterr().out
    assert cli.main(["mine", "recipe=gigpo", "--for=verl"]) == 2
    assert "cannot run in verl" in capsys.readouterr().err


def test_a_host_is_data_alone():
    host = Host("x", "X", "1", feeds={"rewards": "r"})
    assert host.columns == {"rewards"}
