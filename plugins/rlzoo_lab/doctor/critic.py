"""Rules of the critic: whether it learns, what it explains, and whether that matters.

How far the estimator leans on it is measured, not read off a name: `critic/mc_corr` is 1 where
advantages are Monte Carlo returns less V, and less the more the values of later states count.
"""

from itertools import chain
from statistics import median

from rlzoo.runs import metrics as names
from rlzoo.runs.record import Record
from rlzoo_lab.doctor.rule import SHORTEST_TREND, rule
from rlzoo_lab.doctor.series import Finding, course, last, late, learning, rises, spans, updates
from rlzoo_lab.doctor.settings import against_default, default

OF_A_CRITIC = (
    "critic_worse_than_a_constant", "critic_explains_nothing", "critic_is_off",
    "critic_gradient_always_clipped", "reward_flat", "reward_falling", "held_out_falls",
    "updates_skipped", "advantages_do_not_follow_scores",
)  # fmt: skip

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
    elif warmup and rates[-1] < 0.3 * run.key("critic.lr", 0.0):
        key, why = "critic.lr_warmup", f"its rate has only come to {rates[-1]:.2g} by the end"
    elif max(rates) < 2e-7:
        key, why = "critic.lr", f"{updates(run) * len(rates)} steps of it are nothing"
    elif limit and limit < 1e-3 * norm and limit < 1e-3:
        key, why = "critic.max_grad_norm", f"its gradients of length {norm:.2g} are cut to nothing"
    elif eps >= 0.1:
        key, why = "critic.eps", f"AdamW divides gradients of length {norm:.2g} by it"
    elif decay > 3:
        key, why = "critic.weight_decay", f"it shrinks the weights by exp(-{decay:.2g}) in this run"
    else:
        return None
    leans = trust_in_critic(run)
    return Finding(
        "problem" if leans > 0.2 or not learning(run) else "warning",
        f"{against_default(run, key)}: {why}. Its values have a standard deviation of "
        f"{late(run, 'values/std'):.2g} (the returns: {late(run, 'returns/std'):.2g}) and explain "
        f"{late(run, names.EXPLAINED_VARIANCE):.2f} of the returns' variance, and {leans:.0%} of "
        "the advantages' variance comes from it.",
        f"Leave {key} at its default.",
        {"explained_variance": late(run, names.EXPLAINED_VARIANCE), "leans": leans},
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
    return Finding(
        "problem",
        f"The critic is worse than a constant: its explained variance is {tail:.2f} (median of "
        f"{late_span}), where predicting the mean return would give 0; values vary by "
        f"{late(run, 'values/std'):.2g}, returns by {late(run, 'returns/std'):.2g}. Its errors "
        "go into the advantages.",
        f"Lower critic.lr (it is {run.key('critic.lr')}).",
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
        "Raise the estimator's lam towards 1, or use one without a critic, until the critic "
        "explains something.",
        {"explained_variance": tail, "leans": leans},
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
