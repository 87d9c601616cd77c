"""Faults planted in functions written as other trainers write them; all right ones pass.

`pytest -s -k table` prints which check names which fault.
"""

from types import SimpleNamespace

import pytest

from rlzoo_lab.kit import foreign

RIGHT = {
    "gae": '''
def gae(token_level_rewards, values, response_mask, last_values, gamma=1.0, lam=0.95):
    with torch.no_grad():
        after, last, out = last_values, torch.zeros_like(last_values), []
        for t in reversed(range(values.shape[1])):
            m = response_mask[:, t]
            delta = token_level_rewards[:, t] + gamma * after - values[:, t]
            last = m * (delta + gamma * lam * last) + (1 - m) * last
            after = m * values[:, t] + (1 - m) * after
            out.append(last)
        advantages = torch.stack(out[::-1], 1) * response_mask
    return advantages, (advantages + values) * response_mask
''',
    "whitened": '''
def whitened(token_level_rewards, response_mask, gamma=1.0):
    """Returns to go, whitened over the batch."""
    total, out = torch.zeros_like(token_level_rewards[:, 0]), []
    for t in reversed(range(response_mask.shape[1])):
        total = token_level_rewards[:, t] * response_mask[:, t] + total * torch.where(
            response_mask[:, t] > 0, gamma, 1.0)
        out.append(total)
    returns = torch.stack(out[::-1], 1) * response_mask
    count = response_mask.sum().clamp(min=1)
    mean = (returns * response_mask).sum() / count
    var = ((returns - mean).square() * response_mask).sum() / count
    return (returns - mean) * torch.rsqrt(var + 1e-8) * response_mask, returns
''',
    "grpo": '''
def grpo(token_level_rewards, response_mask, index, epsilon=1e-6):
    scores = (token_level_rewards * response_mask).sum(-1)
    rows_of = defaultdict(list)
    for row, uid in enumerate(index):
        rows_of[uid].append(row)
    advantages = torch.zeros_like(scores)
    for rows in rows_of.values():
        group = scores[rows]
        if len(rows) > 1:
            advantages[rows] = (group - group.mean()) / (group.std() + epsilon)
    return advantages[:, None] * response_mask
''',
    "rloo": '''
def rloo(rewards, loss_mask, num_generations):
    group = rewards.view(-1, num_generations)
    if num_generations == 1:
        return torch.zeros_like(rewards)[:, None] * loss_mask
    others = (group.sum(1, keepdim=True) - group) / (num_generations - 1)
    return (group - others).reshape(-1)[:, None] * loss_mask
''',
    "ppo": '''
def ppo(logps, old_logps, advantages, completion_mask, clip=0.2):
    ratio = torch.exp(logps - old_logps)
    near = torch.clamp(ratio, 1 - clip, 1 + clip)
    each = -torch.min(ratio * advantages, near * advantages)
    return (each * completion_mask).sum() / completion_mask.sum().clamp(min=1), {"clip": 0.0}
''',
    "per_response": '''
def per_response(log_prob, old_log_prob, advantages, action_mask):
    ratio = torch.exp(log_prob - old_log_prob)
    count = action_mask.sum(1)
    each = (-ratio * advantages * action_mask).sum(1) / count.clamp(min=1)
    return each.sum() / (count > 0).sum().clamp(min=1)
''',
    "value_loss": '''
def value_loss(vpreds, values, returns, response_mask, cliprange_value=0.2):
    near = values + (vpreds - values).clamp(-cliprange_value, cliprange_value)
    each = torch.maximum((vpreds - returns) ** 2, (near - returns) ** 2)
    return 0.5 * (each * response_mask).sum() / response_mask.sum().clamp(min=1), 0.0
''',
    "k3": '''
def k3(logprob, ref_logprob):
    gap = ref_logprob - logprob
    return torch.exp(gap) - gap - 1
''',
    "k1": '''
def k1(log_probs, log_probs_base):
    return log_probs - log_probs_base
''',
    "average": '''
def average(loss_mat, loss_mask):
    count = loss_mask.sum(-1)
    each = (loss_mat * loss_mask).sum(-1) / count.clamp(min=1)
    return each.sum() / (count > 0).sum().clamp(min=1)
''',
    "whiten": '''
def whiten(values, mask):
    count = mask.sum().clamp(min=1)
    mean = (values * mask).sum() / count
    var = ((values - mean).square() * mask).sum() / count
    return (values - mean) * torch.rsqrt(var + 1e-8) * mask
''',
    "listed": '''
def listed(rewards, group_size=4):
    """Lists of numbers, the groups one after the other."""
    out = []
    for i in range(0, len(rewards), group_size):
        group = rewards[i:i + group_size]
        mean = sum(group) / len(group)
        out += [r - mean for r in group]
    return out
''',
    "one_group": '''
def one_group(rewards):
    rewards = np.array(rewards)
    return (rewards - rewards.mean()) / (rewards.std() + 1e-6)
''',
    "matrix": '''
def matrix(rewards):
    k = rewards.shape[1]
    return rewards - (rewards.sum(1, keepdims=True) - rewards) / (k - 1)
''',
    "one_response": '''
def one_response(rewards, values, dones, gamma=0.99, lam=0.95):
    adv, last, after = np.zeros(len(rewards)), 0, 0
    for t in reversed(range(len(rewards))):
        last = rewards[t] + (1 - dones[t]) * (gamma * after + gamma * lam * last) - values[t]
        after = values[t]
        adv[t] = last
    return adv
''',
    "to_go": '''
def to_go(rewards, gamma=0.9):
    out, total = [], 0.0
    for r in reversed(rewards):
        total = r + gamma * total
        out.insert(0, total)
    return out
''',
    "by_prompt": '''
def by_prompt(scores, prompt_ids):
    adv = np.zeros(len(scores))
    for p in set(prompt_ids):
        rows = [i for i, q in enumerate(prompt_ids) if q == p]
        adv[rows] = [scores[i] - np.mean([scores[j] for j in rows]) for i in rows]
    return adv
''',
    "per_row": '''
def per_row(policy_logps, logp_old, ref_logprobs, advantages, mask, beta=0.04):
    ratio = torch.exp(policy_logps - logp_old)
    gap = ref_logprobs - policy_logps
    each = -ratio * advantages.unsqueeze(-1) + beta * (gap.exp() - gap - 1)
    count = mask.sum(1)
    return ((each * mask).sum(1) / count.clamp(min=1)).sum() / (count > 0).sum().clamp(min=1)
''',
    "on_rewards": '''
def on_rewards(logps, rewards, mask):
    return -(logps * rewards[:, None] * mask).sum() / mask.sum().clamp(min=1)
''',
}  # fmt: skip

# Function, the fault in words, what is replaced, by what, and the check that names it.
FAULTS = [
    ("gae", "sign", "delta = token", "delta = -token", "reward_raises_its_own_advantage"),
    ("gae", "the mask does not carry V over holes", "after = m * values[:, t] + (1 - m) * after",
     "after = values[:, t]", "holes_are_stepped_over"),
    ("gae", "V off by one", "- values[:, t]\n", "- after\n", "exact_values_leave_nothing"),
    ("gae", "no value after a truncated response", "after, last, out = last_values,",
     "after, last, out = 0 * last_values,", "exact_values_leave_nothing"),
    ("gae", "input changed in place", "with torch.no_grad():",
     "with torch.no_grad():\n        token_level_rewards[:, -1] += last_values",
     "inputs_unchanged"),
    ("gae", "returns without the values", "(advantages + values) *", "(advantages) *",
     "exact_values_leave_nothing"),
    ("gae", "lambda also on the next value", "gamma * after - values[:, t]",
     "gamma * lam * after - values[:, t]", "exact_values_leave_nothing"),
    ("whitened", "mean and std over padding", "count = response_mask.sum().clamp(min=1)",
     "count = response_mask.numel()", "padding_is_not_read"),
    ("whitened", "ddof 2", "response_mask).sum() / count\n    return",
     "response_mask).sum() / (count - 2)\n    return", "couples_as_declared"),
    ("whitened", "rewards of earlier actions, too", "in reversed(range(response_mask.shape[1]))",
     "in range(response_mask.shape[1])", "past_reward_is_no_credit"),
    ("grpo", "a group of one keeps its reward", "advantages = torch.zeros_like(scores)",
     "advantages = scores.clone()", "equal_rewards_give_little"),
    ("grpo", "the std of a group of one is NaN", "if len(rows) > 1:", "if rows:",
     "finite_everywhere"),
    ("grpo", "the mean of the batch", "group.mean()", "scores.mean()", "couples_as_declared"),
    ("grpo", "the std of the batch", "group.std()", "scores.std()", "couples_as_declared"),
    ("grpo", "no epsilon", "(group.std() + epsilon)", "group.std()", "finite_everywhere"),
    ("grpo", "not masked", "advantages[:, None] * response_mask",
     "advantages[:, None].expand_as(response_mask)", "zero_off_the_mask"),
    ("grpo", "reward at the last position", "(token_level_rewards * response_mask).sum(-1)",
     "token_level_rewards[:, -1]", "padding_is_not_read"),
    ("rloo", "divided by n", "/ (num_generations - 1)", "/ num_generations", "baseline_is_whole"),
    ("rloo", "groups interleaved", "rewards.view(-1, num_generations)",
     "rewards.view(num_generations, -1).T", "baseline_is_the_groups_own"),
    ("listed", "the sum for the mean", "/ len(group)", "", "baseline_is_whole"),
    ("one_group", "sign", "(rewards - rewards.mean())", "(rewards.mean() - rewards)",
     "reward_raises_its_own_advantage"),
    ("matrix", "divided by n", "/ (k - 1)", "/ k", "baseline_is_whole"),
    ("one_response", "V off by one", "- values[t]\n", "- after\n", "exact_values_leave_nothing"),
    ("to_go", "the wrong order", "out.insert(0, total)", "out.append(total)",
     "past_reward_is_no_credit"),
    ("by_prompt", "the mean of all", "for j in rows]", "for j in range(len(scores))]",
     "couples_as_declared"),
    ("per_row", "sign of the KL", "+ beta", "- beta", "follows_the_reference"),
    ("per_row", "mean over padding", "((each * mask).sum(1) / count.clamp(min=1))",
     "(each * mask).mean(1)", "padding_is_not_read"),
    ("on_rewards", "sign", "return -", "return ", "praise_raises_the_probability"),
    ("ppo", "sign", "each = -torch", "each = torch", "praise_raises_the_probability"),
    ("ppo", "ratio upside down", "logps - old_logps", "old_logps - logps",
     "praise_raises_the_probability"),
    ("ppo", "mean over padding", "(each * completion_mask).sum() / completion_mask.sum()"
     ".clamp(min=1)", "(each * completion_mask).mean()", "padding_is_not_read"),
    ("ppo", "detached", "torch.exp(logps - old_logps)", "torch.exp(logps - old_logps).detach()",
     "finite_everywhere"),
    ("ppo", "old log-probs off by one", "- old_logps)", "- old_logps.roll(1, 1))",
     "holes_are_stepped_over"),
    ("ppo", "max instead of min", "-torch.min(", "-torch.max(", "brakes_along_the_advantage"),
    ("ppo", "without the advantages", "torch.min(ratio * advantages, near * advantages)",
     "torch.min(ratio, near)", "praise_raises_the_probability"),
    ("per_response", "empty responses counted", "(count > 0).sum().clamp(min=1)", "len(count)",
     "rows_without_an_action_count_nothing"),
    ("value_loss", "detached", "near = values", "vpreds = vpreds.detach()\n    near = values",
     "pushes_towards_the_target"),
    ("value_loss", "against the old values", "(vpreds - returns) ** 2, (near",
     "(vpreds - values) ** 2, (near", "pushes_towards_the_target"),
    ("k1", "sign", "log_probs - log_probs_base", "log_probs_base - log_probs",
     "value_is_a_divergence"),
    ("k3", "sign of the linear term", "- gap - 1", "+ gap - 1", "value_is_a_divergence"),
    ("average", "padding counted", "count.clamp(min=1)", "loss_mask.shape[-1]",
     "padding_is_not_read"),
    ("whiten", "std over padding", "* mask).sum() / count\n    return", ").mean()\n    return",
     "padding_is_not_read"),
]  # fmt: skip


def failed(source, name):
    """The checks that fail for the function of that name."""
    space = {"__name__": "theirs"}
    exec("import numpy as np\nimport torch\nfrom collections import defaultdict\n" + source, space)
    made, _ = foreign.components(space[name], {}, {})
    return {r.name: r.message for r in foreign.run_checks(made[0]) if r.passed is False}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_function_passes(name):
    assert failed(RIGHT[name], name) == {}


@pytest.mark.parametrize(
    "fault", [pytest.param(SimpleNamespace(of=a, right=c, wrong=d, named=e), id=f"{a}-{b}")
              for a, b, c, d, e in FAULTS]
)  # fmt: skip
def test_a_planted_fault_is_named(fault):
    assert fault.right in RIGHT[fault.of]
    found = failed(RIGHT[fault.of].replace(fault.right, fault.wrong), fault.of)
    assert fault.named in found
