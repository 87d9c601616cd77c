"""Rules of the critic: whether it learns, what it explains, and whether that matters.

How far the estimator leans on it is measured, not read off a name: `critic/mc_corr` is 1 where
advantages are Monte Carlo returns less V, and less the more the values of later states count.
"""

import math
from itertools import chain
from statistics import median

from rlzoo.runs import metrics as names
from rlzoo.runs.record import Record
from rlzoo_lab.doctor.rule import SHORTEST_TREND, SYMPTOMS, rule
from rlzoo_lab.doctor.series import Finding, course, last, late, learning, rises, spans, updates
from rlzoo_lab.doctor.suspects import against_default, compare_first, default, unknown

OF_A_CRITIC = (
    "critic_worse_than_a_constant", "critic_explains_nothing", "critic_is_off",
    "critic_gradient_always_clipped", "reward_flat", "reward_falling", "held_out_falls",
    "updates_skipped", "advantages_do_not_follow_scores", "critic_targets_are_off",
)  # fmt: skip

MSE = ("mse", "clipped_mse")  # losses of a critic without bins

LEANS = 0.8  # below: what the critic says decides an advantage


def trust_in_critic(run: Record) -> float:
    """The share of the advantages' variance that is not Monte Carlo's: 0 at lam = 1."""
    return 1 - late(run, names.MC_CORR, 1.0) ** 2


def returns_vary(run: Record) -> bool:
    """Whether there is anything for a critic to explain."""
    spread = [late(run, n, 0.0) for n in ("returns/std", "rewards/std", names.SCORE_STD)]
    return max(spread[1:]) > 0.02 and spread[0] > 2e-3


@rule("critic/lr", names.EXPLAINED_VARIANCE, least=3, explains=OF_A_CRITIC)
def critic_does_not_learn(run: Record) -> Finding | None:
    """The critic's weights stay as they are, by a setting."""
    rates, norm = run.series("critic/lr"), median(run.series("critic/grad_norm") or [0.0])
    limit, eps = run.key("critic.max_grad_norm"), run.key("critic.eps", 1e-6)
    decay = run.key("critic.weight_decay", 0.0) * sum(rates) * updates(run)
    warmup = run.key("critic.lr_warmup", 0)
    if max(rates) == 0:
        key, why = "critic.lr", "the critic cannot learn"
    elif norm == 0 and run.has("critic/grad_norm"):
        key = "value_loss.name"
        why = "the critic's gradient is exactly 0, as that of a detached loss"
    elif warmup and rates[-1] < 0.3 * run.key("critic.lr", 0.0):
        key, why = "critic.lr_warmup", f"its rate has only come to {rates[-1]:.2g} by the end"
    elif max(rates) < 2e-7 or (
        max(rates) < 0.03 * default("critic.lr") and late(run, names.EXPLAINED_VARIANCE) < 0.05
    ):
        key, why = "critic.lr", f"{updates(run) * len(rates)} steps of it are next to nothing"
    elif limit and limit < 1e-3 * norm and limit < 1e-3:
        key, why = "critic.max_grad_norm", f"its gradients of length {norm:.2g} are cut to nothing"
    elif eps >= 0.1:
        key, why = "critic.eps", f"AdamW divides gradients of length {norm:.2g} by it"
    elif decay > 3:
        key, why = "critic.weight_decay", f"it shrinks the weights by exp(-{decay:.2g}) in this run"
    else:
        return None
    leans = trust_in_critic(run)
    if leans < 0.2 and learning(run) and max(rates) > 0:
        return None  # it does no harm here
    return Finding(
        "problem" if leans > 0.2 or not learning(run) else "warning",
        f"{against_default(run, key)}: {why}. Its values have a standard deviation of "
        f"{late(run, 'values/std'):.2g} (the returns: {late(run, 'returns/std'):.2g}) and explain "
        f"{late(run, names.EXPLAINED_VARIANCE):.2f} of the returns' variance, and {leans:.0%} of "
        "the advantages' variance comes from it.",
        f"Leave {key} at its default."
        if key != "value_loss.name"
        else "Look at the value loss and at what it is taught (`rlzoo check NAME`).",
        {"explained_variance": late(run, names.EXPLAINED_VARIANCE), "leans": leans},
    )


@rule("values/mean", "returns/mean", least=3, explains=(*OF_A_CRITIC, "critic_diverges"))
def critic_cannot_say_it(run: Record) -> Finding | None:
    """A critic of bins cannot predict returns outside of critic.low and critic.high."""
    low, high = run.key("critic.low", -math.inf), run.key("critic.high", math.inf)
    values, paid = late(run, "values/mean"), late(run, names.REWARD)
    gap = 0.05 * (high - low)
    inside = low - gap <= values <= high + gap
    if low - gap <= paid <= high + gap or not inside or run.key("value_loss.name") in MSE:
        return None
    return Finding(
        "problem" if trust_in_critic(run) > 0.1 or not learning(run) else "warning",
        f"{against_default(run, 'critic.low')}, {against_default(run, 'critic.high')}: the "
        f"critic's values lie between these bounds ({values:.3g} on average), and the rewards "
        f"outside of them ({paid:.3g}); it cannot predict them.",
        "Set critic.low and critic.high to bounds of the returns.",
        {"values": values, "rewards": paid},
    )


@rule(
    "critic/vf_loss",
    names.REWARD,
    least=3,
    explains=(*SYMPTOMS, *OF_A_CRITIC, "actor_gradient_always_clipped"),
)
def critic_drowns_the_policy(run: Record) -> Finding | None:
    """On a shared trunk the value loss outweighs the policy's."""
    coef, usual = run.key("critic.coef", 0.0), default("critic.coef")
    size = coef * median(run.series("critic/vf_loss"))
    if run.key("critic.trunk") != "shared" or coef < 10 * usual or size < 1 or learning(run):
        return None
    return Finding(
        "problem",
        f"{against_default(run, 'critic.coef')}: policy and critic share their weights "
        f"(critic.trunk=shared), and the value loss, {size:.2g} with its coefficient, outweighs "
        f"the policy's (advantages have a standard deviation of about 1). Gradients of length "
        f"{late(run, 'actor/grad_norm', 0.0):.2g} are mostly the critic's; reward {course(run)}.",
        f"Set critic.coef={usual:g}, or critic.trunk=own.",
        {"coef": coef, "size": size},
    )


@rule("values/std", "critic/lr", least=3, explains=OF_A_CRITIC)
def critic_diverges(run: Record) -> Finding | None:
    """Values vary far more than what they are to predict: the critic's rate is too high."""
    times = run.key("critic.lr", 0.0) / default("critic.lr")
    values, paid = late(run, "values/std"), late(run, "rewards/std", 0.0)
    bounds = chain(run.series("rewards/max"), run.series("rewards/min"))
    most = max(map(abs, bounds), default=0.0)
    level = max(map(abs, run.series("values/mean")), default=0.0)
    ev = median(last(run.series(names.EXPLAINED_VARIANCE) or [0.0]))
    wild = ev < -0.3 or values > 3 * paid or (most > 0 and level > 1.5 * most)
    if times < 5 or not wild or not returns_vary(run):
        return None
    return Finding(
        "problem",
        f"{against_default(run, 'critic.lr')}: the critic diverges. Its values go up to "
        f"{level:.3g} on average, with a standard deviation of {values:.2g}, where rewards of "
        f"responses go up to {most:.3g}, with {paid:.2g}; explained variance {ev:.2g} (median of "
        "the last third), where predicting the mean return gives 0.",
        "Lower critic.lr tenfold.",
        {"explained_variance": ev, "values_std": values, "rewards_std": paid, "level": level},
    )


@rule(names.EXPLAINED_VARIANCE, least=SHORTEST_TREND, explains=("critic_explains_nothing",
      "critic_is_off", "critic_gradient_always_clipped"))  # fmt: skip
def critic_worse_than_a_constant(run: Record) -> Finding | None:
    """The critic's values are further from the returns than their mean is."""
    late_span = spans(run, names.EXPLAINED_VARIANCE)[1]
    tail = median(last(run.series(names.EXPLAINED_VARIANCE)))
    if tail >= -0.1 or not returns_vary(run):
        return None
    rate = run.key("critic.lr", 0.0)
    return Finding(
        "problem",
        f"The critic is worse than a constant: its explained variance is {tail:.2f} (median of "
        f"{late_span}), where predicting the mean return would give 0; values vary by "
        f"{late(run, 'values/std'):.2g}, returns by {late(run, 'returns/std'):.2g}. Its errors "
        f"go into the advantages.{'' if rate > default('critic.lr') else unknown(run)}",
        f"Lower critic.lr (it is {rate:g})."
        if rate > default("critic.lr")
        else "Look at the value loss (its sign), at what it is taught (returns) and at how values "
        f"are read. {compare_first(run)}",
        {"explained_variance": tail},
    )


@rule(names.EXPLAINED_VARIANCE, names.MC_CORR, least=SHORTEST_TREND,
      explains=("reward_flat", "held_out_falls", "reward_falling"))  # fmt: skip
def critic_explains_nothing(run: Record) -> Finding | None:
    """The estimator lives on differences between values, and the critic tells nothing apart."""
    tail, leans = late(run, names.EXPLAINED_VARIANCE), trust_in_critic(run)
    if tail > 0.1 or not returns_vary(run):
        return None
    span = spans(run, names.EXPLAINED_VARIANCE)[1]
    if 1 - leans > LEANS**2:
        return Finding(
            "note",
            f"The critic explains nothing so far: explained variance {tail:.2f} in {span}. It does "
            f"no harm here: {1 - leans:.0%} of the advantages' variance is what happened, and a "
            "critic of this kind is a mean reward as baseline.",
            "Give it more updates (train.critic_warmup, critic.lr) if its baseline shall help.",
            {"explained_variance": tail, "leans": leans},
        )
    return Finding(
        "problem",
        f"The critic explains nothing: explained variance {tail:.2f} in {span}, and the estimator "
        f"leans on it: {leans:.0%} of the advantages' variance comes from values (which vary by "
        f"{late(run, 'values/std'):.2g}, returns by {late(run, 'returns/std'):.2g}), not from what "
        f"happened. Reward {course(run)}.",
        (
            f"Raise estimator.lam (it is {run.key('estimator.lam'):g}) towards 1, or u"
            if 0 <= run.key("estimator.lam", 1.0) < 1
            else "U"
        )
        + "se an estimator without a critic, until the critic explains something.",
        {"explained_variance": tail, "leans": leans},
    )


@rule("values/mean", "returns/mean", "critic/vf_bias", least=SHORTEST_TREND, explains=OF_A_CRITIC)
def critic_targets_are_off(run: Record) -> Finding | None:
    """The critic learns what it is taught, and that is not the returns."""
    values, taught = late(run, "values/mean"), late(run, "returns/mean")
    happened = values - late(run, "critic/vf_bias")
    spread = max(late(run, "rewards/std", 0.0), 0.02)
    if not returns_vary(run) or abs(taught - happened) < max(0.6 * spread, 0.1):
        return None
    if abs(values - taught) > 0.5 * abs(taught - happened) or trust_in_critic(run) > 0.5:
        return None  # it has not learnt them, or they are its own values
    return Finding(
        "warning",
        f"The critic is taught something else than the returns: its targets are {taught:.3g} on "
        f"average and its values {values:.3g}, where what happened came to {happened:.3g}.",
        "Look at the `returns` that the estimator gives: rewards of single tokens, another "
        "discount, or a scale of their own.",
        {"targets": taught, "returns": happened},
    )


@rule("values/mean", "returns/mean", least=SHORTEST_TREND)
def critic_is_off(run: Record) -> Finding | None:
    """Values are a constant away from the returns."""
    values, returns = late(run, "values/mean"), late(run, "returns/mean")
    spread = late(run, "rewards/std", 0.0)
    off = late(run, "critic/vf_bias", values - returns)
    if not returns_vary(run) or abs(off) < max(0.6 * spread, 0.1) or (rises(run) and off < 0):
        return None
    return Finding(
        "warning",
        f"The critic is off by a constant: its values are {values:.3g} on average, the returns "
        f"{returns:.3g}; it is {off:+.2g} away, where a reward's standard deviation is "
        f"{spread:.2g}.",
        "Look at how values are read: another network, another scale, an offset; else raise "
        "train.critic_warmup.",
        {"values": values, "returns": returns, "off": off},
    )


@rule("values/std", least=3)
def nothing_to_explain(run: Record) -> Finding | None:
    """Returns do not vary, so that a critic has nothing to tell apart: its figures say nothing."""
    if returns_vary(run) or not run.has(names.EXPLAINED_VARIANCE):
        return None
    return Finding(
        "note",
        f"Returns do not vary (standard deviation {late(run, 'returns/std', 0.0):.1g}), so that "
        f"there is nothing for the critic to explain; its explained variance "
        f"({late(run, names.EXPLAINED_VARIANCE):.2g}) says nothing.",
        "Look at the reward first.",
        {"returns_std": late(run, "returns/std", 0.0)},
    )
