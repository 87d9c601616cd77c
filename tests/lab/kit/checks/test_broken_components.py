"""Every check can fail: for each a component that it finds out."""

import random
from typing import Annotated

import numpy as np
import pytest
import torch

from helpers.planted_bugs import BUGS
from helpers.zoo import ZOO
from rlzoo import Example, Range, RlzooError, group_count, group_mean, group_std
from rlzoo.ops import reward_to_go, whiten
from rlzoo.plugin.component import read_component
from rlzoo_lab.kit import checks

BROKEN = []


def broken(kind, check, **extra):
    """Registers a component that `check` must find fault with."""

    def add(function):
        BROKEN.append((read_component(kind, function, "a test", **extra), check))
        return function

    return add


@broken("estimators", "documented")
def undocumented(rewards):
    return rewards


@broken("policy_losses", "documented")
def without_source(log_probs, advantages):
    """REINFORCE, by nobody."""
    return -log_probs * advantages


@broken("estimators", "defaults_work")
def picky(rewards, *, scale: float = 0.0):
    """Source: here."""
    raise RlzooError("scale must be set")


@broken("estimators", "finite_at_the_bounds")
def divides_by_an_option(rewards, *, scale: Annotated[float, Range(0)] = 1.0):
    """Source: here."""
    return rewards / scale


@broken("estimators", "finite_everywhere")
def mean_of_nothing(sequence_rewards, response_mask):
    """Source: here."""
    return sequence_rewards[:, None] * response_mask / response_mask.sum(-1, keepdim=True)


@broken("policy_losses", "finite_everywhere")
def gradient_of_a_root(log_probs, advantages, response_mask):
    """Finite itself; the slope of the root at 0 is not.  Source: here."""
    norm = (log_probs * response_mask).square().sum(-1, keepdim=True).sqrt()
    return -(log_probs + 0 * norm) * advantages


@broken("estimators", "deterministic")
def draws(rewards, response_mask):
    """Source: here."""
    return rewards + 1e-3 * torch.rand_like(rewards) * response_mask


@broken("estimators", "shape_dtype_device")
def always_double(rewards):
    """Source: here."""
    return rewards.double()


@broken("estimators", "options_are_read")
def one_option_too_many(rewards, *, scale: float = 2.0):
    """Source: here."""
    return rewards


@broken("aggregations", "defaults_work")
def one_weight_per_row(response_mask):
    """Source: here."""
    return response_mask.sum(-1)


@broken("estimators", "holes_are_stepped_over")
def next_token(rewards, response_mask):
    """The next position is not the next action.  Source: here."""
    return (rewards + torch.nn.functional.pad(rewards, (0, 1))[:, 1:]) * response_mask


@broken("aggregations", "padding_is_not_read", couples="batch")
def share_of_the_tensor(response_mask):
    """Source: here."""
    return response_mask / response_mask.numel()


@broken("estimators", "rows_in_any_order")
def contiguous_groups(sequence_rewards, response_mask, group_ids):
    """Takes each run of equal ids for a group.  Source: here."""
    run = torch.cat([torch.zeros(1), (group_ids[1:] != group_ids[:-1]).cumsum(0)]).long()
    return (sequence_rewards - group_mean(sequence_rewards, run))[:, None] * response_mask


@broken("estimators", "baseline_is_whole")
def groups_as_indices(sequence_rewards, response_mask, group_ids):
    """Source: here."""
    total = torch.zeros(100, dtype=sequence_rewards.dtype)
    total.index_add_(0, group_ids % 97, sequence_rewards)
    return (
        (sequence_rewards - total[group_ids % 97])[:, None]
        * response_mask
        / (1 + group_ids)[:, None]
    )


@broken("estimators", "groups_matter")
def asks_in_vain(sequence_rewards, response_mask, group_ids):
    """Source: here."""
    return sequence_rewards[:, None] * response_mask


@broken("estimators", "couples_as_declared")
def whitened(rewards, response_mask):
    """Couples the batch and does not say so.  Source: here."""
    return whiten(rewards, response_mask)


@broken("estimators", "couples_as_declared")
def whitened_groups(sequence_rewards, response_mask, group_ids):
    """Couples more than the group.  Source: here."""
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    return (centered / (centered.std(correction=0) + 1))[:, None] * response_mask


@broken("estimators", "equal_rewards_give_zeros")
def noise_from_rounding(sequence_rewards, response_mask, group_ids):
    """.1 + .2 is not .3.  Source: here."""
    centered = sequence_rewards - group_mean(sequence_rewards, group_ids)
    spread = group_std(sequence_rewards, group_ids)
    return (centered / (spread + 1e-9))[:, None] * response_mask


@broken("kl_penalties", "value_is_a_divergence")
def offset(log_probs, ref_log_probs):
    """Source: here."""
    return log_probs - ref_log_probs + 0.1


@broken("kl_penalties", "gradient_leads_to_the_reference")
def right_value_wrong_gradient(log_probs, ref_log_probs):
    """Never negative, and it drives the policy away.  Source: here."""
    gap = ref_log_probs - log_probs
    return (gap.expm1() - gap).detach() - (0.5 * gap.square() - 0.5 * gap.square().detach())


@broken("estimators", "baseline_is_whole")
def part_of_the_mean(sequence_rewards, response_mask, group_ids):
    """Source: here."""
    rest = 0.9 * group_mean(sequence_rewards, group_ids)
    return (sequence_rewards - rest)[:, None] * response_mask


@broken("policy_losses", "brakes_along_the_advantage")
def max_for_min(log_probs, old_log_probs, advantages):
    """Source: here."""
    ratio = (log_probs - old_log_probs).exp()
    return -torch.maximum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)


@broken("value_losses", "pushes_towards_the_target")
def towards_the_old_value(value_preds, values, returns):
    """Source: here."""
    near = values + (value_preds - values).clamp(-0.2, 0.2)
    return torch.maximum((value_preds - values).square(), (near - returns).square())


@broken("policy_losses", "finite_far_off_policy")
def unbounded_product(log_probs, old_log_probs, advantages, response_mask):
    """The product of a response's ratios, to the power of 10.  Source: here."""
    ratio = (10 * ((log_probs - old_log_probs) * response_mask).sum(-1, keepdim=True)).exp()
    return -ratio * advantages * response_mask


class Off(torch.autograd.Function):
    """The identity, with a backward that adds 1."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient + 1


@broken("policy_losses", "backward_is_the_slope")
def adds_to_its_gradient(log_probs, old_log_probs, advantages):
    """Only twice as large: no sign is wrong.  Source: here."""
    return Off.apply(-advantages * (log_probs - old_log_probs).exp())


@broken("kl_penalties", "backward_is_the_slope")
def adds_to_the_gradient_of_a_penalty(log_probs, ref_log_probs):
    """K2 twice as steep.  Source: here."""
    return Off.apply((log_probs - ref_log_probs).square() / 2)


@broken("policy_losses", "rows_without_signal_can_be_left_out", needs_signal=True)
def drawn_back(log_probs, old_log_probs, advantages):
    """Pulled back to where it was, wherever it has gone.  Source: here."""
    return (log_probs - old_log_probs).square() - log_probs * advantages


@broken("policy_losses", "rows_without_signal_can_be_left_out", needs_signal=True)
def share_of_all_rows(log_probs, advantages):
    """Its metric looks at the rows beside it.  Source: here."""
    loss = -log_probs * advantages
    return loss, {"pg_share": torch.ones_like(loss) / len(loss)}


@broken("policy_losses", "rows_without_an_action_count_nothing", couples="batch")
def centred_over_all_rows(log_probs, advantages, response_mask, group_ids):
    """A dropped row counts in its group's mean, with an advantage of 0.  Source: here."""
    mean = group_mean(advantages.sum(1), group_ids)[:, None]
    return -log_probs * (advantages - 0.1 * mean) * response_mask


@broken("estimators", "discount_is_marked")
def undeclared_discount(rewards, response_mask, *, gamma: Annotated[float, Range(0, 1)] = 1.0):
    """Source: here."""
    return rewards * gamma * response_mask


@broken("value_losses", "pushes_towards_the_target")
def off_by_one(value_preds, returns):
    """Source: here."""
    return (value_preds - returns.roll(1, 1)).square()


@broken("aggregations", "rows_without_an_action_count_nothing", couples="batch")
def mean_over_all_rows(response_mask):
    """Source: here."""
    length = response_mask.sum(-1, keepdim=True).clamp(min=1)
    return response_mask / length / len(response_mask)


@broken("columns", "example_is_like_the_column", shape="B", example=lambda draw, rows, steps: torch.ones(rows, steps))  # fmt: skip  # noqa: E501
def badly_shown(sequence_scores):
    """Source: here."""
    return sequence_scores


class Sound:
    """A task without fault: the next letter is right.

    Source: here.
    """

    def draw(self, split, n, generator):
        letters = torch.randint(97, 122, (n,), generator=generator).tolist()
        return [Example(chr(i), chr(i + 1), i) for i in letters]

    def score(self, response_tokens, answers, response_mask, terminated):
        scores = torch.zeros(response_mask.shape)
        for row, (tokens, answer) in enumerate(zip(response_tokens, answers, strict=True)):
            for t, token in enumerate(tokens):
                scores[row, t] = float(t == 0 and token == answer)
        return scores

    def is_correct(self, responses, answers):
        return torch.tensor([r == a for r, a in zip(responses, answers, strict=True)])

    def demonstrate(self, example, generator):
        return example.answer, example.prompt


class Many(Sound):
    """Numbers; odd ones are held out.  Source: here."""

    def draw(self, split, n, generator):
        drawn = torch.randint(10**6, (n,), generator=generator).tolist()
        return [Example(str(2 * i + (split == "test")), "a") for i in drawn]

    def demonstrate(self, example, generator):
        return "a", "b"


def asserts(rewards, response_mask):
    """Source: here."""
    assert rewards.shape == 3
    return rewards


def stepwise(rewards, response_mask, group_ids):
    """Reward-to-go minus the mean return of the group: the first reward moves the baseline.
    Source: here."""
    to_go = reward_to_go(rewards, response_mask)
    return (to_go - group_mean(rewards.sum(1), group_ids)[:, None]) * response_mask


def whitened_to_go(rewards, response_mask):
    """Source: here."""
    return whiten(reward_to_go(rewards, response_mask), response_mask)


def shrunk(sequence_rewards, response_mask, group_ids):
    """A baseline between the group's mean and the batch's.  Source: here."""
    acts = response_mask.any(1).to(sequence_rewards)
    mean = (sequence_rewards * acts).sum() / acts.sum().clamp(min=1)
    base = (group_mean(sequence_rewards, group_ids) + mean) / 2
    return (sequence_rewards - base)[:, None] * response_mask


def pays_for_brevity(sequence_rewards, response_mask, group_ids):
    """A reward for the shorter responses of a group.  Source: here."""
    rewards = sequence_rewards - 0.01 * response_mask.sum(1)
    return (rewards - group_mean(rewards, group_ids))[:, None] * response_mask


def only_the_good(log_probs, advantages):
    """Source: here."""
    return -log_probs * advantages.clamp(min=0)


def test_a_loss_without_blame_has_a_note():
    component = read_component("policy_losses", only_the_good, "a test")
    results = {r.name: r for r in checks.run_checks(component, ZOO)}
    found = results["praise_raises_the_probability"]
    assert found.passed
    assert "negative advantage" in found.message


@pytest.mark.parametrize(
    ("function", "couples"),
    [
        (pays_for_brevity, "group"),
        (stepwise, "group"),
        (whitened_to_go, "batch"),
        (shrunk, "batch"),
    ],
)
def test_a_baseline_of_the_group_or_the_batch_is_no_fault(function, couples):
    component = read_component("estimators", function, "a test", couples=couples)
    results = checks.run_checks(component, ZOO)
    assert [r for r in results if r.passed is False] == []


NOT_RESULTS = [None, [1.0], {"advantages": 0}, np.zeros((13, 12)), (1, 2, 3), object]


@pytest.mark.parametrize("result", NOT_RESULTS, ids=lambda x: type(x).__name__)
def test_what_is_no_result_is_named_once(result):
    def gives(rewards):
        """Source: here."""
        return result

    component = read_component("estimators", gives, "a test")
    failed = [r for r in checks.run_checks(component, ZOO) if r.passed is False]
    assert [r.name for r in failed] == ["defaults_work"]
    assert "returned" in failed[0].message
    assert "estimators.py" not in failed[0].message


def test_a_fault_is_at_the_plugins_own_line():
    component = read_component("estimators", asserts, "a test")
    failed = [r for r in checks.run_checks(component, ZOO) if r.passed is False]
    assert [r.name for r in failed] == ["defaults_work"]
    assert "AssertionError" in failed[0].message
    assert "test_broken_components.py:" in failed[0].message


def reseeds_python(rewards):
    """Source: here."""
    random.seed(0)
    return rewards


def reseeds_numpy(rewards):
    """Source: here."""
    np.random.seed(0)
    return rewards


def uses_the_last_batch(rewards):
    """Source: here."""
    SEEN.append(rewards.sum())
    return rewards * SEEN[-2:][0]


SEEN: list[torch.Tensor] = []


def nan_for_one(sequence_rewards, response_mask, group_ids):
    """Source: here."""
    centred = sequence_rewards - group_mean(sequence_rewards, group_ids)
    return (centred / (group_count(group_ids) - 1))[:, None] * response_mask


@pytest.mark.parametrize(
    ("function", "check"),
    [(reseeds_python, "deterministic"), (reseeds_numpy, "deterministic"),
     (uses_the_last_batch, "deterministic"), (nan_for_one, "finite_everywhere")],
)  # fmt: skip
def test_further_faults_have_their_check(function, check):
    component = read_component("estimators", function, "a test")
    failed = [r.name for r in checks.run_checks(component, ZOO) if r.passed is False]
    assert check in failed
    assert function is uses_the_last_batch or "rows_in_any_order" not in failed


@broken("policy_losses", "follows_the_reference")
def flees_the_reference(log_probs, ref_log_probs, advantages):
    """Source: here."""
    gap = ref_log_probs - log_probs
    return -log_probs * advantages - 0.1 * (gap.exp() - gap - 1)


@broken("value_losses", "pushes_towards_the_target")
def min_for_max(value_preds, values, returns):
    """Source: here."""
    near = values + (value_preds - values).clamp(-0.2, 0.2)
    return torch.minimum((value_preds - returns).square(), (near - returns).square())


@broken("rewards", "right_beats_wrong")
def contains_the_answer(responses, answers):
    """Source: here."""
    return [float(a in r) for r, a in zip(responses, answers, strict=True)]


@broken("rewards", "right_beats_wrong")
def ends_with_the_answer(responses, answers):
    """Source: here."""
    return [float(r.endswith(a)) for r, a in zip(responses, answers, strict=True)]


@broken("tasks", "made_as_declared")
class Scoreless(Sound):
    """Source: here."""

    score = None


@broken("tasks", "draws_by_the_generator")
class OwnDice(Sound):
    """Source: here."""

    def draw(self, split, n, generator):
        return super().draw(split, n, None)


@broken("tasks", "draws_by_the_generator")
class AlwaysTheSame(Many):
    """Source: here."""

    def draw(self, split, n, generator):
        return super().draw(split, n, torch.Generator().manual_seed(1))


@broken("tasks", "draws_by_the_generator")
class Salted(Many):
    """Source: here."""

    def draw(self, split, n, generator):
        return sorted(super().draw(split, n, generator), key=hash)


@broken("tasks", "draws_by_the_generator")
class DrawsTexts(Sound):
    """Source: here."""

    def draw(self, split, n, generator):
        return [example.prompt for example in super().draw(split, n, generator)]


@broken("tasks", "holds_prompts_out")
class OtherWord(Many):
    """The word is `test`.  Source: here."""

    def draw(self, split, n, generator):
        return super().draw("test" if split == "eval" else "train", n, generator)


@broken("tasks", "scores_are_finite")
class Singular(Sound):
    """Source: here."""

    def score(self, response, answer):
        return float(response == answer)


@broken("tasks", "scores_are_finite")
class ShowsOne(Sound):
    """Source: here."""

    def demonstrate(self, example, generator):
        return example.answer


@broken("tasks", "scores_are_finite")
class Average(Sound):
    """Source: here."""

    def score(self, response_mask):
        return response_mask.sum(-1) / response_mask.sum(-1)


@broken("tasks", "scores_are_finite")
class Misplaced(Sound):
    """Pays one token late.  Source: here."""

    def score(self, response_tokens, answers, response_mask, terminated):
        return super().score(response_tokens, answers, response_mask, terminated).roll(1, 1)


@broken("tasks", "scores_repeat")
class Curve(Sound):
    """Graded on a curve.  Source: here."""

    def score(self, response_mask):
        return response_mask.sum(-1) - response_mask.sum(-1).cummax(0).values


@broken("tasks", "scores_are_causal")
class Early(Sound):
    """Pays the first token for the whole response.  Source: here."""

    def score(self, response_tokens, answers, response_mask, terminated):
        total = super().score(response_tokens, answers, response_mask, terminated).sum(-1)
        total = total * terminated
        return (
            torch.nn.functional.pad(total[:, None], (0, response_mask.shape[1] - 1)) * response_mask
        )


@broken("tasks", "right_is_right")
class Widths(Sound):
    """Source: here."""

    def score(self, response_mask):
        return response_mask.mean(-1)


@broken("tasks", "right_is_right")
class Backwards(Sound):
    """Source: here."""

    def is_correct(self, responses, answers):
        return ~super().is_correct(responses, answers)


@broken("tasks", "answers_row_by_row")
class Forgetful(Sound):
    """Answers a row by what the others said.  Source: here."""

    def respond(self, turns):
        return [turns[0][-1] if len(t) < 2 else None for t in turns]


@broken("rewards", "right_beats_wrong")
def only_the_first_character(responses, answers):
    """Source: here."""
    return torch.tensor([float(r[:1] == a[:1]) for r, a in zip(responses, answers, strict=True)])


@broken("loggers", "takes_what_a_run_gives")
class Fussy:
    """Knows only the names of the first step.  Source: here."""

    def __init__(self, path):
        self.names = None

    def log(self, metrics):
        self.names = self.names or list(metrics)
        assert self.names == list(metrics), "other metrics than before"

    def close(self):
        pass


@pytest.mark.parametrize(("component", "check"), BROKEN, ids=lambda x: getattr(x, "name", x))
def test_broken_components_are_found_out(component, check):
    results = {result.name: result for result in checks.run_checks(component, ZOO)}
    assert results[check].passed is False, results
    assert "\n" not in results[check].message


def test_every_check_is_seen_to_fail():
    seen = {check for _, check in BROKEN} | {name for bug in BUGS for name in bug.tells}
    assert {check.__name__ for kind in checks.CHECKS.values() for check in kind} == seen


def test_a_sound_task_passes_as_it_must():
    for sound in (Sound, Many):
        task = read_component("tasks", sound, "a test")
        assert [r for r in checks.run_checks(task, ZOO) if r.passed is False] == []


def test_a_failing_check_names_component_and_file():
    component = read_component("estimators", always_double, "a test")
    cases = {case.id: case.values[0] for case in checks.parametrize(component).args[1]}
    with pytest.raises(
        pytest.fail.Exception, match=r"'always_double' \(.*test_broken_components.py:\d+\): its"
    ):
        cases["estimator-always_double-shape_dtype_device"]()
