"""The structure of a rule. A rule that explains others is a cause and comes before them."""

from collections.abc import Callable
from dataclasses import dataclass

from rlzoo_lab.data.record import Record
from rlzoo_lab.doctor.series import Finding

SEVERITIES = ("problem", "warning", "note")  # a note: it looks odd and is normal

SHORTEST_TREND = 6  # steps; below, thirds are too short to compare

Judge = Callable[[Record], Finding | None]

# Symptoms of any fault that breaks a policy or keeps it from learning.
SYMPTOMS = (
    "reward_flat", "reward_falling", "held_out_falls", "kl_exploding", "entropy_collapse",
    "no_signal_in_groups", "advantages_vanish", "truncation_rising", "reward_constant",
    "critic_worse_than_a_constant", "critic_explains_nothing", "critic_is_off",
    "actor_gradient_always_clipped", "critic_gradient_always_clipped", "nothing_to_explain",
    "loss_near_zero", "updates_skipped", "reward_is_gamed", "texts_become_alike", "peak_and_fall",
    "training_and_held_out_part", "critic_targets_are_off", "reward_is_noisy",
    "first_updates_break_the_policy",
)  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """A check, the metrics it reads, the number of steps it requires, and the rules whose findings
    follow from its own."""

    name: str
    judge: Judge
    metrics: tuple[str, ...]
    least: int
    explains: tuple[str, ...]


RULES: list[Rule] = []


def rule(*metrics: str, least: int = 1, explains: tuple[str, ...] = ()) -> Callable[[Judge], Judge]:
    """Register a rule; it runs only where each of `metrics` has at least `least` values."""

    def add(judge: Judge) -> Judge:
        RULES.append(Rule(judge.__name__, judge, metrics, least, explains))
        return judge

    return add
