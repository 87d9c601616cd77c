"""Rules about the critic: does it learn, what does it explain, and does that matter?

`critic/mc_corr` measures how much the estimator depends on the critic: it is 1 for advantages that
are Monte Carlo returns minus V, and falls as the values of later states count more.
"""

import math
from itertools import chain
from statistics import median

from rlzoo.runs import metrics as names
from rlzoo_lab.doctor.rule import SHORTEST_TREND, cause, symptom
from rlzoo_lab.doctor.series import (
    Finding,
    course,
    last,
    late,
    learning,
    rises,
    rounded,
    spans,
    updates,
)
from rlzoo_lab.doctor.suspects import against_default, compare_first, default, unknown
from rlzoo_lab.records.record import Record

MSE = ("mse", "clipped_mse")  # losses of a critic without bins

LEANS = 0.8  # below: the critic decides an advantage


def trust_in_critic(run: Record) -> float:
    """The share of the advantages' variance that comes from the critic; 0 at lam = 1."""
    return 1 - late(run, names.MC_CORR, 1.0) ** 2


def returns_vary(run: Record) -> bool:
    """Whether returns vary, so that a critic has something to explain."""
    if run.has("returns/max") and not run.has("returns/std"):  # verl records no spread
        return late(run, "returns/max") - late(run, "returns/min") > 0.02
    spread = [late(run, n, 0.0) for n in ("returns/std", "rewards/std", names.SCORE_STD)]
    return max(spread[1:]) > 0.02 and spread[0] > 2e-3


def _spreads(run: Record) -> str:
    if not (run.has("values/std") and run.has("returns/std")):
        return ""
    return (
        f"Values have a standard deviation of {late(run, 'values/std'):.2g}, returns of "
        f"{late(run, 'returns/std'):.2g}. "
    )


@cause("critic/lr", names.EXPLAINED_VARIANCE, least=3)
def critic_does_not_learn(run: Record) -> Finding | None:
    """A setting prevents the critic's weights from changing."""
    rates, norm = run.series("critic/lr"), median(run.series("critic/grad_norm") or [0.0])
    limit, eps = run.known("critic.max_grad_norm"), run.known("critic.eps", 0.0)
    decay = run.known("critic.weight_decay", 0.0)
    decay = decay and decay * sum(rates) * updates(run)
    warmup = run.known("critic.lr_warmup", 0)
    if max(rates) == 0:
        if rounded(run):
            run.key("critic.lr")
        key, why = "critic.lr", "the critic cannot learn"
    elif norm == 0 and run.has("critic/grad_norm") and late(run, "critic/vf_loss", 1.0) > 0:
        key = "value_loss.name"
        why = (
            "the critic's gradient is exactly 0 although its loss is not: no gradient of the "
            "value loss reaches the critic's weights, perhaps because of .detach() or .item()"
        )
    elif warmup and rates[-1] < 0.3 * run.known("critic.lr", 0.0):
        key, why = "critic.lr_warmup", f"its learning rate reached only {rates[-1]:.2g} by the end"
    elif max(rates) < 2e-7 or (  # another trainer's model may be a million times as large
        not run.trainer
        and max(rates) < 0.03 * default("critic.lr")
        and late(run, names.EXPLAINED_VARIANCE) < 0.05
    ):
        key, why = "critic.lr", f"{len(rates)} steps at this rate have no effect"
    elif limit and limit < 1e-3 * norm and limit < 1e-3:
        key, why = "critic.max_grad_norm", f"its gradients of norm {norm:.2g} are clipped to 0"
    elif eps >= 0.1:
        key, why = "critic.eps", f"AdamW divides gradients of norm {norm:.2g} by it"
    elif decay > 3:
        key, why = "critic.weight_decay", f"it shrinks the weights by exp(-{decay:.2g}) in this run"
    else:
        return None
    leans, cut_off = trust_in_critic(run), key == "value_loss.name"
    if leans < 0.2 and learning(run) and max(rates) > 0 and not cut_off:
        return None  # harmless here
    return Finding(
        "problem" if leans > 0.2 or not learning(run) or cut_off else "warning",
        f"{against_default(run, key)}: {why}. {_spreads(run)}Its values explain "
        f"{late(run, names.EXPLAINED_VARIANCE):.2f} of the returns' variance"
        + (
            f", and {leans:.0%} of the advantages' variance comes from the critic."
            if run.has(names.MC_CORR)
            else "."
        ),
        f"Use the default of {key}."
        if not cut_off
        else "Check the value loss and its targets (`rlzoo check NAME`).",
        {"explained_variance": late(run, names.EXPLAINED_VARIANCE), "leans": leans},
    )


@cause("values/mean", "returns/mean", least=3)
def critic_range_too_narrow(run: Record) -> Finding | None:
    """A critic with bins cannot predict returns outside [critic.low, critic.high]."""
    low, high = run.key("critic.low", -math.inf), run.key("critic.high", math.inf)
    values, paid = late(run, "values/mean"), late(run, names.REWARD)
    gap = 0.05 * (high - low)
    inside = low - gap <= values <= high + gap
    if low - gap <= paid <= high + gap or not inside or run.key("value_loss.name") in MSE:
        return None
    return Finding(
        "problem" if trust_in_critic(run) > 0.1 or not learning(run) else "warning",
        f"{against_default(run, 'critic.low')}, {against_default(run, 'critic.high')}: the "
        f"critic's values are within these bounds ({values:.3g} on average) and the rewards are "
        f"outside ({paid:.3g}), so it cannot predict them.",
        "Set critic.low and critic.high to bounds of the returns.",
        {"values": values, "rewards": paid},
    )


@cause("critic/vf_loss", names.REWARD, least=3)
def critic_drowns_the_policy(run: Record) -> Finding | None:
    """On a shared trunk, the value loss outweighs the policy loss."""
    coef, usual = run.key("critic.coef", 0.0), default("critic.coef")
    size = coef * median(run.series("critic/vf_loss"))
    if run.key("critic.trunk") != "shared" or coef < 10 * usual or size < 1 or learning(run):
        return None
    return Finding(
        "problem",
        f"{against_default(run, 'critic.coef')}: policy and critic share their weights "
        f"(critic.trunk=shared), and the value loss, {size:.2g} with its coefficient, outweighs "
        "the policy loss (advantages have a standard deviation of about 1). Most of the gradient "
        f"(norm {late(run, 'actor/grad_norm', 0.0):.2g}) comes from the critic; the reward went "
        f"from {course(run)}.",
        f"Set critic.coef={usual:g}, or critic.trunk=own.",
        {"coef": coef, "size": size},
    )


@cause("values/std", "critic/lr", least=3)
def critic_diverges(run: Record) -> Finding | None:
    """Values vary far more than the returns, because the critic's learning rate is too high."""
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
        f"{against_default(run, 'critic.lr')}: the critic diverges. Its mean value reaches "
        f"{level:.3g} with a standard deviation of {values:.2g}; response rewards reach "
        f"{most:.3g} with {paid:.2g}. The explained variance is {ev:.2g} (median of the "
        "last third); predicting the mean return gives 0.",
        "Lower critic.lr tenfold.",
        {"explained_variance": ev, "values_std": values, "rewards_std": paid, "level": level},
    )


@symptom(names.EXPLAINED_VARIANCE, least=SHORTEST_TREND)
def critic_worse_than_a_constant(run: Record) -> Finding | None:
    """The critic predicts returns worse than a constant would."""
    late_span = spans(run, names.EXPLAINED_VARIANCE)[1]
    tail = median(last(run.series(names.EXPLAINED_VARIANCE)))
    if tail >= -0.1 or not returns_vary(run):
        return None
    rate = run.known("critic.lr", 0.0)
    return Finding(
        "problem",
        "The critic predicts returns worse than a constant would: its explained variance is "
        f"{tail:.2f} (median of {late_span}); predicting the mean return gives 0. {_spreads(run)}"
        f"Its errors enter the advantages.{'' if rate > default('critic.lr') else unknown(run)}",
        f"Lower critic.lr (now {rate:g})."
        if rate > default("critic.lr")
        else "Check the sign of the value loss, its targets (the returns) and how values are "
        f"computed. {compare_first(run)}",
        {"explained_variance": tail},
    )


@symptom(names.EXPLAINED_VARIANCE, names.MC_CORR, least=SHORTEST_TREND)
def critic_explains_nothing(run: Record) -> Finding | None:
    """The estimator needs differences between values, but the critic's values are all equal."""
    tail, leans = late(run, names.EXPLAINED_VARIANCE), trust_in_critic(run)
    if tail > 0.1 or not returns_vary(run):
        return None
    span = spans(run, names.EXPLAINED_VARIANCE)[1]
    learns = run.improved and rises(run) and leans < 0.6
    if 1 - leans > LEANS**2 or learns:
        harmless = (
            "The policy learns nevertheless"
            if learns
            else "This is harmless here, since such a critic acts as a mean-reward baseline"
        )
        return Finding(
            "note",
            f"The critic explains nothing so far: its explained variance is {tail:.2f} in {span}. "
            f"{harmless}: {1 - leans:.0%} of the advantages' variance comes from rewards.",
            "For a better baseline, give the critic more updates (train.critic_warmup) or raise "
            "critic.lr.",
            {"explained_variance": tail, "leans": leans},
        )
    return Finding(
        "problem",
        f"The critic explains nothing: its explained variance is {tail:.2f} in {span}, and the "
        f"estimator depends on it: {leans:.0%} of the advantages' variance comes from values "
        f"(standard deviation {late(run, 'values/std'):.2g}; that of the returns is "
        f"{late(run, 'returns/std'):.2g}), not from rewards. The reward went from {course(run)}.",
        (
            f"Raise estimator.lam (now {run.known('estimator.lam'):g}) towards 1, or u"
            if 0 <= run.known("estimator.lam", 1.0) < 1
            else "U"
        )
        + "se an estimator without a critic, until the critic explains something.",
        {"explained_variance": tail, "leans": leans},
    )


@symptom("values/mean", "returns/mean", "critic/vf_bias", least=SHORTEST_TREND)
def critic_targets_are_off(run: Record) -> Finding | None:
    """The critic learns its targets, but these are not the returns."""
    values, taught = late(run, "values/mean"), late(run, "returns/mean")
    happened = values - late(run, "critic/vf_bias")
    spread = max(late(run, "rewards/std", 0.0), 0.02)
    if not returns_vary(run) or abs(taught - happened) < max(0.6 * spread, 0.1):
        return None
    if abs(values - taught) > 0.5 * abs(taught - happened) or trust_in_critic(run) > 0.5:
        return None  # it has not learned them, or they are its own values
    return Finding(
        "warning",
        f"The critic's targets are not the returns: the targets are {taught:.3g} on average and "
        f"the values {values:.3g}, but the rewards that followed sum to {happened:.3g}.",
        "Check the estimator's `returns`: it may use per-token rewards, a different "
        "discount or a different scale.",
        {"targets": taught, "returns": happened},
    )


@symptom("values/mean", "returns/mean", least=SHORTEST_TREND)
def critic_is_off(run: Record) -> Finding | None:
    """The values differ from the returns by a constant."""
    values, returns = late(run, "values/mean"), late(run, "returns/mean")
    spread = late(run, "rewards/std", 0.0)
    off = late(run, "critic/vf_bias", values - returns)
    if not returns_vary(run) or abs(off) < max(0.6 * spread, 0.1) or (rises(run) and off < 0):
        return None
    return Finding(
        "warning",
        f"The critic is off by a constant: its values are {values:.3g} on average, and the "
        f"returns are {returns:.3g}. The difference is {off:+.2g}, and the standard deviation of "
        f"the rewards is {spread:.2g}.",
        "Check how values are computed: is the network, the scale or an offset wrong? If not, "
        "raise train.critic_warmup.",
        {"values": values, "returns": returns, "off": off},
    )


@symptom("values/std", least=3)
def nothing_to_explain(run: Record) -> Finding | None:
    """The returns do not vary, so the critic's metrics are meaningless."""
    if returns_vary(run) or not run.has(names.EXPLAINED_VARIANCE):
        return None
    return Finding(
        "note",
        f"The returns do not vary (standard deviation {late(run, 'returns/std', 0.0):.1g}), so "
        "the critic has nothing to explain; its explained variance "
        f"({late(run, names.EXPLAINED_VARIANCE):.2g}) is meaningless.",
        "Check the reward first.",
        {"returns_std": late(run, "returns/std", 0.0)},
    )
