"""Rules about settings: a key whose value is harmful, with the metrics that show it.

A value is reported only if its effect is visible in the metrics.
"""

from functools import cache
from statistics import fmean

from rlzoo.recipe.files import list_configs, read_layer
from rlzoo.runs import metrics as names
from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.rule import SHORTEST_TREND, cause, symptom
from rlzoo_lab.doctor.series import (
    Finding,
    course,
    early,
    ends,
    late,
    learning,
    rises,
    rose_and_fell,
    severity,
    worse,
)
from rlzoo_lab.doctor.suspects import against_default, compare_first, default, foreign, unknown


@cause(names.REWARD, least=3)
def kl_too_strong(run: Record) -> Finding | None:
    """The KL term outweighs the reward."""
    start = run.key("kl.coef", 0.0)
    coef = max(late(run, names.KL_COEF, start), late(run, names.KL_COEF, 0.0))
    if run.key("kl.place") == "none" or coef < 0.1:
        return None
    far, noise = abs(late(run, names.REF_KL, 0.0)), 0.0
    score, reward = late(run, names.SCORE_STD, 0.0), late(run, "rewards/std", 0.0)
    if run.key("kl.place") == "reward" and reward > 0:
        noise = max(0.0, 1 - (score / reward) ** 2)
    grown = run.key("kl.controller") == "adaptive" and coef > 3 * start
    held = far < 0.02 and coef >= 0.3 and (coef >= 1 or grown or not learning(run))
    held = held or (far < 0.05 and coef >= 1 and not learning(run))
    held = held or (grown and coef > 30 * start and coef >= 0.3)  # and rising still
    if not (noise > 0.3 or held):
        return None
    key, advice = against_default(run, "kl.coef"), "Set kl.coef near 0.01."
    if grown:
        key = f"kl.target={run.key('kl.target'):g}, which kl.controller=adaptive answers with a "
        key += f"kl.coef of {coef:.3g}"
        advice = "Raise kl.target."
    share = f"{noise:.0%} of the rewards' variance comes from KL, not from scores. "
    return Finding(
        "problem",
        f"{key}: the KL term outweighs the reward. {share if noise else ''}The policy ends up "
        f"{far:.2g} nats per token from the reference; the reward went from {course(run)}.",
        advice,
        {"kl_coef": coef, "share_of_variance": noise, "ref_kl": far},
    )


@cause(names.ENTROPY, least=3)
def entropy_bonus_too_strong(run: Record) -> Finding | None:
    """The entropy bonus outweighs the reward, so the policy approaches noise."""
    coef, values = run.key("actor.entropy_coef", 0.0), run.series(names.ENTROPY)
    start, end = fmean(values[:2]), late(run, names.ENTROPY)
    high = coef >= 0.1 and end > 0.9 * start and not run.solved  # it learns, and stays as random
    if coef < 0.02 or not (high or (end > 1.1 * start and not rises(run))):
        return None
    return Finding(
        "warning" if rises(run) else "problem",
        f"{against_default(run, 'actor.entropy_coef')}: the entropy bonus outweighs the reward. "
        f"Entropy went from {start:.2g} to {end:.2g} nats per token; the reward went from "
        f"{course(run)}.",
        "Set actor.entropy_coef=0, or 0.001.",
        {"coef": coef, "first": start, "last": end},
    )


@cause(names.REWARD)
def temperature_far_from_one(run: Record) -> Finding | None:
    """The sampling temperature is far from 1."""
    temperature = run.key("rollout.temperature", 1.0)
    if 0.35 < temperature < 1.7:
        return None
    what = "responses are near noise" if temperature > 1 else "the policy hardly explores"
    return Finding(
        severity(run),
        f"{against_default(run, 'rollout.temperature')}: the sampled and trained policy is "
        f"softmax(logits / {temperature:g}), which is far from the model; at an entropy of "
        f"{early(run, names.ENTROPY):.2g} nats per token {what}. The reward went from "
        f"{course(run)}.",
        "Set rollout.temperature=1.",
        {"temperature": temperature},
    )


@cache
def _narrowest_shipped(loss: str | None) -> float:
    """The narrowest clip of a shipped recipe with this policy loss, or with any where it is
    unknown; some are narrow on purpose."""
    found = [0.02]
    for path in list_configs("recipes").values():
        values = read_layer(path).values
        if loss in (None, values.get("policy_loss.name")):
            found += [x for k, x in values.items() if k.startswith("policy_loss.clip") and x]
    return min(found)


@cause(names.REWARD, least=3)
def clip_too_narrow(run: Record) -> Finding | None:
    """Tokens are clipped although the policy has hardly moved."""
    heads = ("policy_loss.clip_low", "policy_loss.clip_high", "policy_loss.clip")
    clips = {k: v for k in heads if isinstance(v := run.known(k), int | float) and v > 0}
    clipped, kl = _clipped(run), fmean(map(abs, run.series(names.PPO_KL) or [0.0]))
    if not clips or min(clips.values()) >= 0.5 * _narrowest_shipped(run.known("policy_loss.name")):
        return None
    if clipped < 0.15 or kl > 0.02:
        return None
    return Finding(
        "problem",
        f"{', '.join(f'{k}={v:g}' for k, v in clips.items())}: {clipped:.0%} of the tokens are "
        f"clipped, and have no gradient, while an update moves the policy by {kl:.1g} nats per "
        "token.",
        "Use the default clip bounds of the policy loss.",
        {"clip_fraction": clipped, "approximate_kl": kl},
    )


def _clipped(run: Record) -> float:
    """The largest share of tokens that are clipped, early or late."""
    lines = run.steps[-1:] + run.steps[:1]
    fractions = {k for line in lines for k in line if "clipfrac" in k}
    return max((max(early(run, k, 0.0), late(run, k, 0.0)) for k in fractions), default=0.0)


@symptom(names.REWARD, least=3)
def update_too_large(run: Record) -> Finding | None:
    """One batch moves the policy too far."""
    kl, clipped = max(ends([abs(v) for v in run.series(names.PPO_KL) or [0.0]])), _clipped(run)
    harm = not learning(run) or (worse(run) and not rises(run))  # else it games the reward
    rank, alpha = run.known("model.lora.rank") or 0, run.known("model.lora.alpha") or 0.0
    times = {  # of what is usual, as far as it is known
        "train.epochs": run.known("train.epochs") or 0,
        "train.minibatches": (run.known("train.minibatches") or 0) / default("train.minibatches"),
        "actor.lr": (run.known("actor.lr") or 0.0) / default("actor.lr"),
        "model.lora.alpha": alpha / rank / 2 if rank else 0.0,
    }
    key = max(times, key=lambda k: times[k])
    known = times[key] > 1.5
    # Another trainer may not record the KL of an update.
    blind = clipped > 0.15 and run.has("actor/pg_clipfrac") and not run.has(names.PPO_KL) and known
    # Runs that learn have up to 0.08 nats. That a run does not learn has many causes, so a smaller
    # step is accused only with other evidence.
    clear = kl > 0.1 or (kl > 0.04 and (clipped > 0.15 or rose_and_fell(run)))
    if not (kl > 0.3 or ((clear or blind or (clipped > 0.3 and kl > 0.02)) and harm)):
        return None
    own, lower = [*foreign(run)] if kl <= 0.3 else [], f"Lower {key} tenfold."
    if own:
        lower = f"Run `rlzoo check NAME` on {own[0]}, which may be the cause. {lower}"
    effect = "" if blind else f"moves the policy by up to {kl:.2g} nats per token and "
    return Finding(
        "problem" if harm else "warning",
        f"{against_default(run, key) if known else 'No recorded setting is high'}: updates are too "
        f"large. One batch {effect}clips {clipped:.0%} of the tokens; the reward went from "
        f"{course(run)}.{'' if known else unknown(run)}",
        lower if known else compare_first(run),
        {"approximate_kl": kl, "clip_fraction": clipped},
    )


@symptom(names.REWARD, names.ENTROPY, names.SCORE_STD, least=SHORTEST_TREND)
def first_updates_break_the_policy(run: Record) -> Finding | None:
    """The first updates lose the reward permanently (in runs that record no KL per update)."""
    values, entropy = run.series(names.REWARD), run.series(names.ENTROPY)
    floor = min(run.series("score/min"), default=min(values))
    had, left = values[0] - floor, max(values[3:]) - floor
    error = run.series(names.SCORE_STD)[0] / run.key("rollout.prompts", 64) ** 0.5
    changed = abs(entropy[3] - entropy[0]) > 0.3 * entropy[0]  # else: the reward itself stopped
    if run.has(names.PPO_KL) or had < 2 * error or had <= 0 or left > 0.1 * had or not changed:
        return None
    return Finding(
        "problem",
        f"{against_default(run, 'actor.lr')}: the first updates break the policy. The reward falls "
        f"from {values[0]:.3g} to {values[3]:.3g} at step {run.steps_of(names.REWARD)[3]} and "
        f"never returns; entropy goes from {entropy[0]:.2g} to {entropy[3]:.2g} nats per token.",
        "Lower actor.lr tenfold.",
        {"first": values[0], "best_after": left + floor},
    )
