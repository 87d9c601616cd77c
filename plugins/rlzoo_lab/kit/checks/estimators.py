"""Checks of advantage estimators: which actions get credit, for which rewards, against which
baseline."""

from collections.abc import Iterator

import torch

from rlzoo.errors import RlzooError
from rlzoo.ops import next_action
from rlzoo_lab.kit.checks import made_up
from rlzoo_lab.kit.checks.made_up import PER_TOKEN_REWARDS, REWARD_COLUMNS, RIGHT
from rlzoo_lab.kit.checks.subject import NotApplicable, Subject, same, small

_PER_RESPONSE = {"sequence_rewards", "sequence_scores", "score_components"}
_TEACHER = {"teacher_log_probs", "teacher_kl"}


def reward_raises_its_own_advantage(s: Subject) -> None:
    """More reward for an action never lowers its advantage, and raises some advantages."""
    s.require(*REWARD_COLUMNS)
    for _ in s.variants():
        _own_gain(s, in_sum=True)
        if set(PER_TOKEN_REWARDS) & set(s.needs):
            _own_gain(s, in_sum=False)  # so that a sum over the response hides nothing


def teacher_raises_what_it_prefers(s: Subject) -> None:
    """A higher teacher probability of a token never lowers its advantage, and raises some."""
    column = next((n for n in s.needs if n.endswith("teacher_log_probs")), "teacher_log_probs")
    s.require(column)
    for columns in s.trials():
        before, gains = s.call(columns)["advantages"], []
        for row, at in columns["response_mask"].nonzero()[:8].tolist():
            liked = columns[column].clone()
            liked[row, at] += 1e-3
            more = s.call({**columns, column: liked})["advantages"]
            gains.append(float((more - before)[row, at]))
        fault = "a token that is more likely under the teacher gets a lower advantage: wrong sign?"
        assert min(gains) > -1e-9, fault
        assert max(gains) > 1e-9, "the teacher has no effect"


def past_reward_is_no_credit(s: Subject) -> None:
    """A reward that came before an action does not change that action's advantage."""
    s.require(*PER_TOKEN_REWARDS)
    exotic = [name for name in s.exotic() if s.zoo.columns[name].shape in ("BT", "BTK")]
    coarse = {*_PER_RESPONSE, "turn_ids", "state_keys", *exotic} & set(s.needs)
    if coarse:
        raise NotApplicable(f"may assign credit to whole segments ({', '.join(sorted(coarse))})")
    for plain in s.trials():
        for row in (plain["response_mask"].sum(1) > 1).nonzero()[:, 0].tolist():
            twice = torch.tensor([*range(len(plain["group_ids"])), row])
            columns = made_up.rows_of(s.zoo, plain, twice)
            first = int(columns["response_mask"][row].nonzero()[0])
            before = s.call(columns)["advantages"][:, first + 1 :]
            paid = made_up.paid_more(columns, row, first, RIGHT)
            gap = (s.call(paid)["advantages"][:, first + 1 :] - before)[[row, -1]]
            if s.component.couples != "row":  # a baseline is the same for its twin
                gap[0] = torch.minimum(gap[0].abs(), (gap[0] - gap[1]).abs())
            small(gap[0], 1e-9, "a reward affects the advantages of later actions: off by one?")


def exact_values_leave_nothing(s: Subject) -> None:
    """With deterministic rewards and exact values, advantages are 0; values off by one fail."""
    s.require("values")
    if "rewards" not in s.needs or "group_ids" in s.needs:
        raise NotApplicable("compares rewards with more than the values")
    mask = s.batch()["response_mask"].sort(1, descending=True).values  # holes: another check
    for columns in s.trials(mask=mask):
        if "bootstrap_values" not in s.needs:
            columns["bootstrap_values"] = torch.zeros_like(columns["bootstrap_values"])
        gamma: float | torch.Tensor = 1.0
        if "gamma" in s.component.options:
            gamma = s.options.get("gamma", s.component.options["gamma"].default)
        mask, rewards, end = (columns[n] for n in ("response_mask", "rewards", "bootstrap_values"))
        if "turn_ids" in s.needs:  # it discounts by turns
            turns = columns["turn_ids"].to(rewards)
            inside = next_action(turns, mask) == turns
            gamma = torch.full_like(turns, float(gamma)).masked_fill(inside, 1)
        values = torch.zeros_like(rewards)
        for _ in range(mask.shape[1]):  # V = r + gamma V', until it has gone through all steps
            values = (rewards + gamma * next_action(values, mask, end)) * mask
        columns["values"] = columns["value_preds"] = values
        # On its own data the sampler is the policy.
        columns["sampler_log_probs"] = columns["log_probs"] = columns["old_log_probs"]
        result = s.component(columns, **s.options)
        fault = "advantages are up to {} with exact values: are values off by one?"
        small(result["advantages"], 1e-9, fault)
        small(result["returns"] - values, 1e-9, "returns differ from the exact values by {}")


def baseline_is_the_groups_own(s: Subject) -> None:
    """If a constant added to all rewards changes nothing, one added to one group's does neither."""
    columns = with_group_baseline(s)
    before = s.call(columns)
    fault = "a constant on one group's rewards changes advantages: does the baseline mix groups?"
    for group in columns["group_ids"].unique():
        same(s.call(_raised(columns, columns["group_ids"] == group)), before, fault)


def baseline_is_whole(s: Subject) -> None:
    """If advantages are linear in the rewards and those of the rest of the group lower them, the
    baseline is a mean: equal rewards give 0. Divided by another count, they do not."""
    s.require("group_ids")
    s.require(*REWARD_COLUMNS)
    if "state_keys" in s.needs:
        raise NotApplicable("compares states as well as responses")
    columns = s.batch(mask=torch.ones_like(s.batch()["response_mask"]))
    _, index, count = columns["group_ids"].unique(return_inverse=True, return_counts=True)
    several = (count[index] > 1)[:, None]
    drawn = torch.rand(len(index), generator=torch.Generator().manual_seed(0)).double()
    ones, first = torch.ones_like(drawn), (torch.arange(len(index)) == 0).double()

    def paid(rewards: torch.Tensor) -> torch.Tensor:
        return s.call(made_up.paid(columns, rewards))["advantages"] * several

    gaps = paid(2 * drawn) - 2 * paid(drawn), paid(drawn + 1) - paid(drawn) - paid(ones)
    lower = bool((paid(first)[1:] < -1e-9).any())
    if max(float(x.abs().max()) for x in gaps) > 1e-9 or not lower:
        raise NotApplicable("is not linear in the rewards, or has no baseline of the group's")
    small(paid(ones), 1e-6, "equal rewards of 1 give advantages of {}: divided by n?")


def equal_rewards_give_zeros(s: Subject) -> None:
    """Equal rewards (such as 0.1 + 0.2 and 0.3) and groups of one give advantages of 0."""
    with_group_baseline(s)
    rewards = set(REWARD_COLUMNS) & set(s.needs)
    if not rewards <= _PER_RESPONSE or s.exotic() or _TEACHER & set(s.needs):
        raise NotApplicable("uses more than one reward per response")
    full = torch.ones_like(s.batch()["response_mask"])  # lengths may be paid, too
    for dtype, tiny in ((torch.float64, 1e-12), (torch.float32, 1e-6)):
        for plain in s.trials(dtype=dtype, mask=full.to(dtype)):
            for case, worst in largest_of_equal_rewards(s, plain):
                assert worst <= tiny, (
                    f"advantages are up to {worst:.3g} from {case}; they must be 0 where "
                    "rlzoo.group_degenerate(rewards, group_ids)"
                )


def largest_of_equal_rewards(s: Subject, plain: made_up.Columns) -> Iterator[tuple[str, float]]:
    """(case, the largest advantage): rewards of the batch `plain` that are equal up to rounding,
    and groups of one."""
    dtype = plain["rewards"].dtype
    rows = torch.arange(len(plain["group_ids"]))
    nearly = torch.where(rows % 2 == 0, 0.1 + 0.2, 0.3).to(dtype)
    if dtype == torch.float32:
        nearly = torch.where(rows % 2 == 0, nearly, torch.nextafter(nearly, nearly + 1))
    for case, columns in (
        ("rewards that are equal up to rounding", made_up.paid(plain, nearly)),
        ("groups of one", s.batch(dtype=dtype, groups=rows.flip(0))),
    ):
        yield case, float(s.call(columns)["advantages"].abs().max())


def discount_is_marked(s: Subject) -> None:
    """An option called gamma or discount is annotated `rlzoo.Discount`: metrics and diagnose use
    the option with this annotation, and do not discount without one."""
    named = [name for name in s.component.options if name in ("gamma", "discount")]
    if not named:
        raise NotApplicable("has no option called gamma or discount")
    for name in named:
        option = s.component.options[name]
        write = f"write `{name}: Discount = {option.default}`"
        assert option.discount, f"its option {name!r} is not marked: {write}"


def _own_gain(s: Subject, *, in_sum: bool) -> None:
    columns = s.batch()
    mask = columns["response_mask"].bool()
    before = s.call(columns)["advantages"]
    for place, end in (("first", 0), ("last", -1)):
        gains = []
        for row in (mask.any(1) & (columns["sequence_scores"] < RIGHT)).nonzero()[:, 0].tolist():
            at = int(mask[row].nonzero()[end])
            more = made_up.paid_more(columns, row, at, RIGHT, in_sum=in_sum)
            gains.append((s.call(more)["advantages"] - before)[row, at])
        gain = torch.stack(gains)
        what = f"when the reward of the {place} action rises, its advantage"
        assert bool((gain >= -1e-9).all()), f"{what} falls"
        assert bool((gain > 1e-9).any()), f"{what} does not change: is the reward misplaced?"


def _raised(columns: made_up.Columns, rows: torch.Tensor) -> made_up.Columns:
    """One more reward for each of `rows` (B,) bool that acts."""
    mask = columns["response_mask"].bool()
    for row in (rows & mask.any(1)).nonzero()[:, 0]:
        at = int(mask[row].nonzero()[-1])
        columns = made_up.paid_more(columns, int(row), at, 1.0)
        columns["score_components"][row, 1:] += 1.0
    return columns


def with_group_baseline(s: Subject) -> made_up.Columns:
    """A batch, if `s` is seen to subtract a baseline: a constant on all rewards cancels."""
    s.require("group_ids")
    s.require(*REWARD_COLUMNS)
    if s.component.couples == "batch":
        raise NotApplicable("declares couples='batch', so its baseline may be the batch's")
    columns = s.batch(mask=torch.ones_like(s.batch()["response_mask"]))
    try:
        same(s.call(_raised(columns, columns["group_ids"] > -1)), s.call(columns), "")
    except (AssertionError, RlzooError):
        raise NotApplicable("depends on the level of the rewards") from None
    return columns


ALL = (
    reward_raises_its_own_advantage, teacher_raises_what_it_prefers, past_reward_is_no_credit,
    exact_values_leave_nothing,
    baseline_is_the_groups_own, baseline_is_whole, equal_rewards_give_zeros, discount_is_marked,
)  # fmt: skip
