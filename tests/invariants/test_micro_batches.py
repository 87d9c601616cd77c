"""However rows are cut, padded, packed or skipped, a step is the same."""

import pytest
import torch
from torch.nn import functional as F

from helpers.architectures import ENDS, columns_of, ragged
from helpers.grids import grid
from helpers.rewards_for_tests import LETTERS
from helpers.runs import CLOCK
from helpers.worlds import (
    changed,
    hold_trait,
    rolled,
    state_of,
    step,
    unprobed,
    watch_passes,
    weights_after,
    with_gradient,
)
from rlzoo.accel.engine import Engine, Kept
from rlzoo.accel.passes import align, lengths, pack
from rlzoo.lm.critic import Critic
from rlzoo.lm.policy import Policy
from rlzoo.mdp.batch import take
from rlzoo.step.update import Experience, gradients, make_optimizers, update

SHARED = ["critic.trunk=shared"]
CUTS = (
    ("grpo", []),
    ("rloo", ["critic.trunk=own"]),
    ("dr_grpo", []),
    ("ppo_gae", []),
    ("ppo_gae", ["critic.trunk=shared"]),
    ("gspo", []),
    ("grpo", ["policy_loss=tpo"]),
    ("rloo", ["kl.place=none", "actor.entropy_coef=0.01"]),
    ("dr_grpo", ["kl.place=none"]),
)


@pytest.mark.parametrize(
    ("case", "few"),
    grid(CUTS, [True, False],
         always=lambda case, few: few and case[0] in ("grpo", "ppo_gae", "gspo")),
    ids=str,
)  # fmt: skip
def test_how_rows_are_cut_padded_and_skipped_changes_no_parameter(make, case, few, monkeypatch):
    """In float64, as GPT-2 can: AdamW makes up to lr / eps times as much of a rounding error."""

    recipe, extra = case

    def after(*words, left=0, right=0):
        world = make("gpt2", *extra, *words, "rollout.prompts=6", recipe=recipe)
        world = changed(world, eos_ids=ENDS)  # ragged rows
        for network in (
            *world.engine.networks.values(),
            getattr(world.engine.reference, "model", None),
        ):
            if network is not None:
                network.double()
        batch = rolled(world)
        assert len(set(lengths(batch)[1].tolist())) > 2
        for group in (1, 4):  # groups without a signal
            batch["advantages"][batch["group_ids"] == group] = 0
        seen.clear()
        update(
            world,
            Experience(_padded(batch, left, right), 0.0),
            make_optimizers(world.engine, world.plan),
            0,
            0.1,
        )
        counts.append(len(seen))
        return state_of(world)

    seen, counts = watch_passes(monkeypatch), []
    whole = after("train.skip_no_signal=false")
    if few:
        variants = {
            "skipped and padding": after(left=3, right=4),
            "microbatch of 1": after("train.microbatch=1"),
            "microbatch of 2": after("train.microbatch=2"),
        }
    else:
        variants = {
            "skipped": after(),
            "padding": after("train.skip_no_signal=false", left=3, right=4),
            "microbatch of 5": after("train.microbatch=5"),
            "microbatch of 1": after("train.microbatch=1"),
        }
    assert max(counts) > 3 * counts[0]  # it was cut, indeed
    for how, state in variants.items():
        for key, x in whole.items():
            torch.testing.assert_close(state[key], x, atol=1e-9, rtol=0, msg=f"{how}: {key}")


def test_how_rows_are_cut_moves_no_metric(make):
    """Also where a pass of the update serves the columns, and where sampling is truncated."""
    one = ["model.dtype=float64", "train.minibatches=1", "rollout.top_p=0.6", "rollout.prompts=6"]
    whole, cut = (step(make("gpt2", *one, *more))[1] for more in ([], ["train.microbatch=1"]))
    assert whole["sampler/log_prob_gap"] > 0.1
    untimed = [n for n in whole if not n.startswith(CLOCK)]
    assert {n: cut[n] for n in untimed} == pytest.approx({n: whole[n] for n in untimed}, rel=1e-9)


def _padded(batch, left, right):
    """The same rows with more padding on both sides."""
    from rlzoo.mdp.batch import Batch
    from rlzoo.plugin.columns import COLUMNS

    wider = Batch(F.pad(batch["response_mask"], (0, right)))
    for name, x in batch.items():
        if name == "response_mask":
            continue
        shape = COLUMNS[name].shape
        by = {"BT": (0, right), "BP": (left, 0)}.get(shape)
        wider.add(name, F.pad(x, by) if by else x)
    return wider


@pytest.mark.parametrize(
    "words", [["train.microbatch=2"], ["train.epochs=1", "train.minibatches=1"]]
)
def test_gradients_of_one_network_are_held_at_a_time(make, words, monkeypatch):
    """Those of the actor are gone when the critic's are made, and all of them after the step; also
    where the forward passes of both were kept."""
    world, held = make("llama", *words), []

    def with_gradient():
        return {
            n
            for n, x in world.engine.networks.items()
            if any(p.grad is not None for p in x.parameters())
        }

    def watched(*arguments, **options):
        backward(*arguments, **options)
        held.append(with_gradient())

    backward = Engine._join_gradients
    monkeypatch.setattr(Engine, "_join_gradients", watched)
    step(world)
    assert {"actor"} in held
    assert {"critic"} in held
    assert {"actor", "critic"} not in held
    assert not with_gradient()


def test_groups_without_a_signal_are_not_read(make, monkeypatch):
    seen = watch_passes(monkeypatch)
    read = {}
    for skip in ("true", "false"):
        world = make("llama", "kl.place=none", f"train.skip_no_signal={skip}", recipe="grpo")
        batch = rolled(world)
        batch["advantages"][batch["group_ids"] != 2] = 0
        seen.clear()
        gradients(world.engine, world.plan, take(batch, torch.arange(batch.rows)), 0.0)
        read[skip] = with_gradient(seen)
    rows = take(batch, (batch["group_ids"] == 2).nonzero()[:, 0])
    assert read["true"] == align(rows, trees=True).ids.numel()
    assert read["true"] < 0.5 * read["false"]


def test_a_mini_batch_without_any_signal_is_a_step_of_nothing(make):
    world = make("llama", "kl.place=none", recipe="grpo")
    batch = rolled(world)
    batch["advantages"].zero_()
    before = state_of(world)
    metrics = update(
        world, Experience(batch, 0.0), make_optimizers(world.engine, world.plan), 0, 0.0
    )
    assert metrics["actor/grad_norm"] == 0
    assert all(torch.equal(x, before[key]) for key, x in state_of(world).items())


def test_packed_passes_are_hardly_padded():
    prompts, responses, groups = ragged(600, prompt=(3, 40), response=(1, 120), each=4)
    columns = columns_of(prompts, responses, groups=groups)
    real = sum(int(x.sum()) for x in lengths(columns))
    longest = int(sum(lengths(columns)).max())
    for budget in (longest, 2000, 10_000):
        parts = pack(columns, budget)
        assert sorted(torch.cat(parts).tolist()) == list(range(600))
        sizes = [align(take(columns, part)).ids.numel() for part in parts]
        assert max(sizes) <= budget
        assert sum(sizes) < real / 0.9
    # Whereas in the order in which they come:
    chunks = torch.arange(600).split(40)
    assert sum(align(take(columns, rows)).ids.numel() for rows in chunks) > real / 0.7
    trees = pack(columns, 10_000, trees=True)
    assert sorted(torch.cat(trees).tolist()) == list(range(600))
    for rows in trees:
        group = torch.isin(columns["group_ids"], columns["group_ids"][rows])
        assert int(group.sum()) == len(rows)  # whole groups


EVERY = (
    ("ppo_gae", []),
    ("ppo_gae", ["critic.trunk=shared"]),
    ("grpo", ["actor.entropy_coef=0.01"]),
    ("rloo", ["rollout.truncation=drop"]),
    ("ppo_gae", ["policy_loss=clip_cov"]),
    ("ppo_gae", ["policy_loss=high_entropy"]),
    ("deepseek_v3_2", []),
    ("grpo", ["policy_loss=tpo"]),
    ("grpo", ["rollout.top_p=0.9", "correction=tis"]),
    ("ppo_gae", ["value_loss=hl_gauss"]),
)


@pytest.mark.parametrize(
    ("case", "size"),
    # Plain ones are cut above, too.
    grid(EVERY, [3, 1], always=lambda case, size: size == 3 and case[1] not in ([], SHARED)),
    ids=str,
)  # fmt: skip
def test_micro_batches_change_no_parameter(zoo, words, case, size):
    recipe, extra = case
    words = [*words, *extra, *LETTERS]
    whole, metrics = weights_after(zoo, words, recipe)
    cut, cut_metrics = weights_after(zoo, [*words, f"train.microbatch={size}"], recipe)
    for name, tensor in whole.items():
        torch.testing.assert_close(cut[name], tensor, atol=1e-6, rtol=0, msg=name)
    assert cut_metrics == pytest.approx(metrics, abs=1e-4)


@pytest.mark.parametrize("trunk", ["own", "shared"])
@pytest.mark.parametrize("autocast", ["none", "bfloat16"])
def test_a_forward_pass_that_is_kept_changes_nothing(zoo, words, trunk, autocast, monkeypatch):
    """One update per rollout: the critic's pass for the columns serves the update, too."""

    words = [*words, *LETTERS, f"critic.trunk={trunk}", f"model.autocast={autocast}",
             "train.minibatches=1", "kl.place=none"]  # fmt: skip
    calls = []
    # Found out by passes of their own. In a tree, rows lie in another order after shuffling, and
    # bfloat16 rounds their sums otherwise.
    hold_trait(monkeypatch, "plain_head", True)
    hold_trait(monkeypatch, "no_trees", "" if autocast == "none" else "rounding")
    monkeypatch.setattr("rlzoo.lm.build.enforce", unprobed)
    for place in (Critic, Policy):
        name = "predict" if place is Critic else "run"
        plain = getattr(place, name)
        monkeypatch.setattr(place, name, lambda *a, p=plain, n=name: calls.append(n) or p(*a))
    kept, _ = weights_after(zoo, words, "ppo_gae")
    assert calls == (["run"] if trunk == "shared" else ["run", "predict"])
    monkeypatch.setattr(Engine, "ahead", lambda *given, **actor: Kept())
    again, _ = weights_after(zoo, words, "ppo_gae")
    for name, tensor in kept.items():
        torch.testing.assert_close(tensor, again[name], atol=1e-6, rtol=0, msg=name)
