"""`rlzoo doctor RUN`: what a run's metrics say is wrong, in words, and what to try.  No torch here.

Each rule is a function of the run's record that returns a finding or None; it says which metrics
it rests on and is left out where a run has none of them. Trends compare the first with the last
third of the steps.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median

from rlzoo.runs import metrics as names
from rlzoo.runs.record import Record
from rlzoo.tools.doctor.series import Finding, ends, last, spans, trend

SEVERITIES = ("problem", "warning", "note")  # a note says that something odd is as it should be

SHORTEST_TREND = 6  # steps; below, first and last third say nothing


Judge = Callable[[Record], Finding | None]


@dataclass(frozen=True)
class Rule:
    """A judgement, the metrics that it rests on, and how many steps it takes."""

    name: str
    judge: Judge
    metrics: tuple[str, ...]
    least: int


RULES: list[Rule] = []


def rule(*metrics: str, least: int = 1) -> Callable[[Judge], Judge]:
    """Register a rule; it is asked only where all `metrics` have `least` values."""

    def add(judge: Judge) -> Judge:
        RULES.append(Rule(judge.__name__, judge, metrics, least))
        return judge

    return add


@rule()
def not_finite(run: Record) -> Finding | None:
    """NaN or infinity among the metrics."""
    for line in run.steps:
        bad = [k for k, v in line.items() if isinstance(v, float) and not math.isfinite(v)]
        if bad:
            return Finding(
                "problem",
                f"{bad[0]} is not finite at step {line['step']}"
                + (f", and {len(bad) - 1} other metrics" if bad[1:] else "") + ".",
                "Look at what the reward returns there; lower actor.lr and critic.lr.",
                {"step": line["step"], "metrics": bad},
            )  # fmt: skip
    return None


@rule(names.SKIPPED)
def updates_skipped(run: Record) -> Finding | None:
    """Loss or gradient was not finite, so optimizer steps were left out."""
    skipped = [(line["step"], line[names.SKIPPED]) for line in run.steps
               if line.get(names.SKIPPED, 0) > 0]  # fmt: skip
    if not skipped:
        return None
    total = sum(n for _, n in skipped)
    share = len(skipped) / len(run.steps)
    return Finding(
        "problem" if share > 0.05 else "warning",
        f"{total:g} updates were skipped, in {len(skipped)} of {len(run.steps)} steps (the first "
        f"at step {skipped[0][0]}): their loss or gradient was not finite.",
        "Lower actor.lr and critic.lr, bound the reward, use model.autocast=none; a ratio that "
        "overflows comes from too many epochs on one batch.",
        {"updates": total, "steps": [step for step, _ in skipped]},
    )


@rule()
def actor_not_trained(run: Record) -> Finding | None:
    """No step updated the policy: the critic's warm-up lasts as long as the run."""
    if not run.steps or any(k.startswith("actor/pg_") for line in run.steps for k in line):
        return None
    warmup = run.key("train.critic_warmup", 0)
    if not warmup:
        return None
    return Finding(
        "warning",
        f"The policy has not been updated in any of the {len(run.steps)} steps: "
        f"train.critic_warmup={warmup} trains the critic alone until then.",
        "Train longer, or lower train.critic_warmup.",
        {"critic_warmup": warmup, "steps": len(run.steps)},
    )


@rule("actor/lr")
def learning_rate_zero(run: Record) -> Finding | None:
    """The policy's learning rate is 0 for most of the run."""
    rates = run.series("actor/lr")
    zero = sum(rate == 0 for rate in rates)
    if zero <= len(rates) / 2:
        return None
    return Finding(
        "problem",
        f"actor/lr is 0 in {zero} of {len(rates)} steps: the policy cannot change.",
        f"Set actor.lr (it is {run.key('actor.lr')}); check actor.lr_schedule and actor.lr_warmup.",
        {"zero_steps": zero, "of": len(rates)},
    )


@rule(names.SCORE_STD, least=3)
def reward_constant(run: Record) -> Finding | None:
    """Every response of a step scores the same: nothing to prefer."""
    spread = run.series(names.SCORE_STD)
    flat = sum(s < 1e-8 for s in spread)
    if flat <= 0.8 * len(spread) or run.solved:
        return None
    level = fmean(run.series(names.REWARD))
    return Finding(
        "problem",
        f"All responses of a step score the same in {flat} of {len(spread)} steps (mean reward "
        f"{level:.3g}): there is nothing to learn from.",
        "If the score is always 0 the task is too hard for this model or the verifier never says "
        "yes (read samples.jsonl): use easier prompts, a partial reward, or a warm start.",
        {"constant_steps": flat, "of": len(spread), "mean_reward": level},
    )


@rule(names.NO_SIGNAL, least=3)
def no_signal_in_groups(run: Record) -> Finding | None:
    """All samples of a prompt score alike, so comparing within groups gives zeros."""
    late = spans(run, names.NO_SIGNAL)[1]
    if run.has("critic/vf_loss") or run.key("rollout.samples", 2) < 2:
        return None  # a critic compares with what it expected, not with the group
    tail = fmean(last(run.series(names.NO_SIGNAL)))
    if tail < 0.7:
        return None
    score = fmean(last(run.series(names.REWARD)))
    if run.solved:
        return Finding(
            "note",
            f"{tail:.0%} of the groups carry no signal in {late}, because nearly every "
            f"sample is right (held-out accuracy {run.accuracy:.2f}): there is little left to "
            "learn here.",
            "Stop, or give harder prompts.",
            {"no_signal": tail, "accuracy": run.accuracy},
        )
    return Finding(
        "problem",
        f"{tail:.0%} of the groups carry no signal in {late}: all samples of a prompt "
        f"score alike (mean reward {score:.3g}), so their advantages are 0.",
        "More samples per prompt (rollout.samples), prompts that are solved some of the time, a "
        "finer reward, or a sampler that draws such groups again.",
        {"no_signal": tail, "mean_reward": score},
    )


@rule(names.REWARD, least=SHORTEST_TREND)
def reward_flat(run: Record) -> Finding | None:
    """No rise of the reward beyond its noise, nor on held-out prompts."""
    early, late = spans(run, names.REWARD)
    values = run.series(names.REWARD)
    change, error = trend(values)
    if change > 2 * error or change < -3 * error or run.improved or run.solved:
        return None
    spread = run.series(names.SCORE_STD)
    constant = len(set(values)) == 1 and spread and max(spread) < 1e-8
    if constant or held_out_falls(run):  # `reward_constant`, `held_out_falls` say more
        return None
    before, after = ends(values)
    return Finding(
        "warning",
        f"The reward is flat: {before:.3g} in {early}, "
        f"{after:.3g} in {late}; the change of {change:+.2g} is within "
        f"its noise (standard error {error:.2g})"
        + (", and held-out prompts did not improve." if len(run.evaluations) > 1 else "."),
        "Train longer; raise actor.lr; more prompts per step (rollout.prompts) for less noise. "
        "Read samples.jsonl: does any response score?",
        {"first": before, "last": after, "standard_error": error},
    )


@rule(names.REWARD, least=SHORTEST_TREND)
def reward_falling(run: Record) -> Finding | None:
    """The reward gets worse by more than its noise."""
    early, late = spans(run, names.REWARD)
    values = run.series(names.REWARD)
    change, error = trend(values)
    if change >= -3 * error or change == 0 or run.improved:
        return None
    before, after = ends(values)
    return Finding(
        "problem",
        f"The reward falls: {before:.3g} in {early}, "
        f"{after:.3g} in {late} (standard error {error:.2g}).",
        "Lower actor.lr, train.epochs or train.minibatches; raise kl.coef. If it fell at once, "
        "look for a reward whose sign is wrong.",
        {"first": before, "last": after, "standard_error": error},
    )


@rule()
def held_out_falls(run: Record) -> Finding | None:
    """The last evaluation is worse than an earlier one by more than both intervals."""
    if len(run.evaluations) < 2:
        return None
    final = run.evaluations[-1]
    what = names.ACCURACY if names.ACCURACY in final else names.SCORE
    best = max(run.evaluations, key=lambda e: e.get(what, -math.inf))
    if not final.get(f"{what}_high", math.inf) < best.get(f"{what}_low", -math.inf):
        return None
    return Finding(
        "problem",
        f"{what} on held-out prompts fell from {best[what]:.3f} at step {best['step']} to "
        f"{final[what]:.3f} at step {final['step']}; their intervals do not meet.",
        "Stop earlier; lower actor.lr; raise kl.coef; more distinct prompts. If the training "
        "reward rose meanwhile, the policy games the reward or has learnt its prompts by heart.",
        {"best_step": best["step"], "best": best[what], "last": final[what]},
    )


@rule(names.REF_KL, least=SHORTEST_TREND)
def kl_exploding(run: Record) -> Finding | None:
    """The policy runs away from the reference."""
    late = spans(run, names.REF_KL)[1]
    values = run.series(names.REF_KL)
    n = max(1, len(values) // 3)
    middle, tail = fmean(values[-2 * n : -n]), fmean(last(values))
    if not (tail > 1.0 or (tail > 0.5 and tail > 2 * middle)):
        return None
    return Finding(
        "problem",
        f"KL to the reference is {tail:.3g} nats per token in {late}, after "
        f"{middle:.3g} in the third before: the policy writes what the reference hardly ever "
        "would.",
        f"Raise kl.coef (it is {run.key('kl.coef')}), or kl.controller=adaptive with a kl.target; "
        "lower actor.lr. Read samples.jsonl: is this still text?",
        {"middle": middle, "last": tail, "kl_coef": run.key("kl.coef")},
    )


@rule(names.ENTROPY, least=SHORTEST_TREND)
def entropy_collapse(run: Record) -> Finding | None:
    """The policy has stopped trying other tokens, and the task is not solved."""
    late = spans(run, names.ENTROPY)[1]
    values = run.series(names.ENTROPY)
    start, tail = fmean(values[:3]), fmean(last(values))
    if tail > 0.2 * start or run.solved or start <= 0:
        return None
    return Finding(
        "warning" if run.accuracy is None else "problem",
        f"Entropy collapsed from {start:.3g} to {tail:.3g} nats per token ({late})"
        + ("" if run.accuracy is None else f", at a held-out accuracy of {run.accuracy:.2f}")
        + ": all samples of a prompt become the same, so nothing new is tried.",
        "Raise actor.entropy_coef (0.001 to 0.01), lower actor.lr, raise the upper clip bound of "
        "the policy loss, or raise kl.coef.",
        {"first": start, "last": tail},
    )


@rule(names.EXPLAINED_VARIANCE, least=SHORTEST_TREND)
def critic_worse_than_a_constant(run: Record) -> Finding | None:
    """The critic's values are further from the returns than their mean is."""
    late = spans(run, names.EXPLAINED_VARIANCE)[1]
    tail = median(last(run.series(names.EXPLAINED_VARIANCE)))
    if tail >= -0.1:
        return None
    return Finding(
        "problem",
        f"The critic is worse than a constant: its explained variance is {tail:.2f} (median of "
        f"{late}), where predicting the mean return would give 0. Its errors go into "
        "the advantages.",
        "Lower critic.lr, or raise it if critic/vf_loss still falls; train.critic_warmup=5; an "
        "estimator that leans less on the critic (lam nearer 1), or one without.",
        {"explained_variance": tail},
    )


@rule(names.LOG_PROB_GAP)
def sampler_and_policy_disagree(run: Record) -> Finding | None:
    """What tokens were drawn from is not the policy that is trained."""
    gap = fmean(run.series(names.LOG_PROB_GAP))
    if gap < 1e-2 or run.key("correction.name"):
        return None
    truncated = run.key("rollout.top_k", 0) > 0 or run.key("rollout.top_p", 1.0) < 1
    why = (
        f"rollout.top_k={run.key('rollout.top_k', 0)} and "
        f"rollout.top_p={run.key('rollout.top_p', 1.0)} cut the distribution"
        if truncated
        else "sampling and scoring compute different numbers (precision, dropout, temperature)"
    )
    return Finding(
        "warning",
        f"Samples are off-policy: their log-probabilities differ by {gap:.2g} nats per token from "
        f"the policy's, because {why}.",
        "correction=NAME weighs the loss against it (`rlzoo plugins` lists the columns); or "
        "rollout.top_k=0 rollout.top_p=1.",
        {"gap": gap},
    )


@rule(names.RATIO, names.PPO_KL, least=3)
def ratio_not_one_at_first(run: Record) -> Finding | None:
    """The ratio differs from 1 before any update changed the policy.

    With one update per batch every ratio is taken before it, so both metrics must say 1 and 0.
    With more, they mix in the updates; yet the mean of pi / pi_old over samples of pi_old is 1
    whatever pi is, so a mean that stays away from 1 tells of a wrong pi_old.
    """
    updates = run.key("train.epochs", 1) * run.key("train.minibatches", 1)
    ratios, kls = run.series(names.RATIO), run.series(names.PPO_KL)
    away = median(abs(r - 1) for r in ratios)
    kl = median(abs(k) for k in kls)
    # Updates move the mean of a small batch too, the less the smaller the KL they make.
    right = max(away, kl) <= 1e-3 if updates == 1 else away <= 0.02 + 2 * kl
    if right:
        return None
    when = "before the only update of a step" if updates == 1 else "on average"
    return Finding(
        "problem",
        f"The ratio of new to old policy is off by {away:.2g} {when} (median over "
        f"{len(ratios)} steps; approximate KL {kl:.2g}), where it must be 1: old_log_probs are "
        "not of the policy that is trained.",
        "rollout.old_log_probs=recomputed; look for dropout, another temperature, or a lower "
        "precision in sampling than in the update.",
        {"ratio_off_by": away, "approximate_kl": kl, "updates_per_batch": updates},
    )


@rule(names.PPO_KL, least=3)
def update_too_large(run: Record) -> Finding | None:
    """A batch moves the policy further than its samples can vouch for."""
    late = spans(run, names.PPO_KL)[1]
    tail = fmean([abs(v) for v in last(run.series(names.PPO_KL))])
    clips = {k for line in run.steps for k in line if k.startswith("actor/") and
             k.endswith("clipfrac")}  # fmt: skip
    clipped = max((fmean(last(run.series(k))) for k in clips if run.series(k)), default=0.0)
    if tail <= 0.1 and clipped <= 0.3:
        return None
    return Finding(
        "warning",
        f"Updates are large: one batch moves the policy by {tail:.2g} nats per token, and "
        f"{clipped:.0%} of the tokens are clipped ({late}).",
        "Lower actor.lr, train.epochs or train.minibatches.",
        {"approximate_kl": tail, "clip_fraction": clipped},
    )


@rule(names.TRUNCATED, least=3)
def truncation_rising(run: Record) -> Finding | None:
    """More and more responses run into the length limit, or most do."""
    early, late = spans(run, names.TRUNCATED)
    values = run.series(names.TRUNCATED)
    before, tail = ends(values)
    rising = len(values) >= SHORTEST_TREND and tail > 0.2 and tail - before > 0.1
    if not rising and tail <= 0.5:
        return None
    lengths = run.series(names.LENGTH)
    length = f" (mean length {fmean(last(lengths)):.1f})" if lengths else ""
    return Finding(
        "warning",
        f"{tail:.0%} of the responses are cut off at rollout.max_new_tokens="
        f"{run.key('rollout.max_new_tokens')} in {late}{length}, after {before:.0%} "
        f"in {early}.",
        "Raise rollout.max_new_tokens, or make length cost: rollout.truncation=penalty; "
        "rollout.truncation=bootstrap if a critic is there.",
        {"first": before, "last": tail},
    )


@rule("raw_advantages/std", least=3)
def advantages_vanish(run: Record) -> Finding | None:
    """The estimator gives (nearly) the same advantage everywhere."""
    late = spans(run, "raw_advantages/std")[1]
    values = run.series("raw_advantages/std")
    tail = fmean(last(values))
    if tail > 1e-4 or run.solved:
        return None
    return Finding(
        "problem",
        f"Advantages do not vary (standard deviation {tail:.1g} in {late}): there is "
        "no gradient but rounding.",
        "See what the reward gives (samples.jsonl, `rlzoo trace RUN`).",
        {"std": tail},
    )


def _gradient(run: Record, name: str) -> Finding | None:
    limit = run.key(f"{name}.max_grad_norm")
    norms = run.series(f"{name}/grad_norm")
    if not limit or not norms:
        return None
    over = sum(norm > limit for norm in norms) / len(norms)
    middle = median(norms)
    if over <= 0.9 or middle <= 3 * limit:
        return None
    return Finding(
        "warning",
        f"The {name}'s gradient is clipped in {over:.0%} of the steps: its norm is {middle:.3g} "
        f"(median), {name}.max_grad_norm={limit:g}. Only its direction is used.",
        f"Raise {name}.max_grad_norm to about {2 * middle:.2g}, or scale the reward down.",
        {"share": over, "median_norm": middle, "limit": limit},
    )


@rule("actor/grad_norm", least=3)
def actor_gradient_always_clipped(run: Record) -> Finding | None:
    """The policy's gradient is always far above its limit."""
    return _gradient(run, "actor")


@rule("critic/grad_norm", least=3)
def critic_gradient_always_clipped(run: Record) -> Finding | None:
    """The critic's gradient is always far above its limit."""
    return _gradient(run, "critic")


@rule(names.PG_LOSS, names.REWARD, least=SHORTEST_TREND)
def loss_near_zero(run: Record) -> Finding | None:
    """The policy loss is near 0 while the reward rises: that is normal."""
    losses, rewards = run.series(names.PG_LOSS), run.series(names.REWARD)
    size = fmean([abs(v) for v in losses])
    change, error = trend(rewards)
    if size > 0.02 or change <= 2 * error:
        return None
    return Finding(
        "note",
        f"The policy loss stays near 0 (mean size {size:.1g}) while the reward rises by "
        f"{change:.2g}. That is normal: at ratio 1 the loss is minus the mean advantage, which "
        "whitening, or a baseline, makes 0. Its gradient is not 0, and what falls is no error.",
        "Watch reward/mean and eval/*, not the loss.",
        {"loss": size, "reward_change": change},
    )
