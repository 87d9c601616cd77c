"""Four published claims on enumerated worlds: prints tables; docs/results.md has some numbers.

    python docs/studies/claims.py    a minute; exact, so a second run gives the same numbers

Every prefix of every world is visited (5 tokens and an end, 4 steps), in float64, so there is no
sampling error; a row is the mean over ten worlds and the range in brackets.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from common import table
from rlzoo_lab.kit.oracle.oracle import Oracle
from rlzoo_lab.kit.oracle.tree import make_tree
from rlzoo_lab.kit.oracle.worlds import make_world

SEEDS = range(10)
TREE = make_tree(6, 4)
FIVE = make_tree(6, 4, prompts=5)  # right with 0.3, 0.1, 0.6, 0.03 and 0.9
BETA = 0.3


def spread(values: list[float], digits: int = 3) -> str:
    mean = sum(values) / len(values)
    said = [f"{round(x, digits) + 0.0:.{digits}f}" for x in (mean, min(values), max(values))]
    return f"{said[0]} [{said[1]}, {said[2]}]"


def correlation(x: Tensor, y: Tensor, weight: Tensor) -> float:
    weight = weight / weight.sum()
    x, y = x - (weight * x).sum(), y - (weight * y).sum()
    return float((weight * x * y).sum() / ((weight * x * x).sum() * (weight * y * y).sum()).sqrt())


# ---------------------------------------------------------------- log pi / pi_ref as an advantage


def soft_optimum(world: Oracle, beta: float) -> tuple[Tensor, Tensor]:
    """(logits, Q) (S, V) of the policy that maximises E R - beta KL(pi || reference): a pass from
    the leaves, V = beta log sum_a pi_ref exp(Q / beta)."""
    log_ref = world.reference.log_softmax(-1)
    q = world.rewards.clone()
    child = TREE.child
    for depth in range(TREE.horizon - 1, -1, -1):
        here = TREE.level(depth)
        below = child[here]
        value = beta * (log_ref + q / beta).logsumexp(-1)  # (S,), right for the levels below
        q[here] += torch.where(below >= 0, value[below.clamp(min=0)], 0)
    return log_ref + q / beta, q


def trained(world: Oracle, beta: float, steps: int, rate: float = 4.0) -> Oracle:
    """The world after some steps of exact gradient ascent from the reference."""
    logits = world.reference.clone()
    for _ in range(steps):
        now = Oracle(TREE, logits, world.rewards, world.coin, world.reference, kl_coef=beta)
        logits = logits + rate * now.gradient()
    return Oracle(TREE, logits, world.rewards, world.coin, world.reference, kl_coef=beta)


def progress(seed: int, finish: Callable[[Oracle], Oracle]) -> tuple[float, float]:
    """Correlation of log pi / pi_ref with the soft optimal advantage and with the policy's own
    advantage of the reward, over the choices that the policy makes."""
    world = make_world("graded", TREE, seed=seed)
    done = finish(world)
    q = soft_optimum(world, BETA)[1]
    log_ref = world.reference.log_softmax(-1)
    best = q - BETA * (log_ref + q / BETA).logsumexp(-1, keepdim=True)
    plain = Oracle(TREE, done.logits, world.rewards, world.coin, world.reference)
    weight = done.visits[:, None] * done.pi
    gap = done.log_ratio
    return correlation(gap, best, weight), correlation(gap, plain.advantages, weight)


def optimum(world: Oracle) -> Oracle:
    logits = soft_optimum(world, BETA)[0]
    return Oracle(TREE, logits, world.rewards, world.coin, world.reference, kl_coef=BETA)


def progress_table() -> str:
    cases: dict[str, Callable[[Oracle], Oracle]] = {"the optimum of E R - beta KL": optimum}
    for steps in (10, 100, 1000):
        cases[f"{steps} exact steps with the KL"] = lambda w, n=steps: trained(w, BETA, n)
        cases[f"{steps} exact steps without it"] = lambda w, n=steps: trained(w, 0.0, n)
    rows = []
    for name, finish in cases.items():
        found = [progress(seed, finish) for seed in SEEDS]
        rows.append([name, *(spread([f[k] for f in found]) for k in (0, 1))])
    head = [
        "policy",
        "correlation with the soft optimal advantage",
        "with the policy's own advantage",
    ]
    return table(head, rows)


# ---------------------------------------------------------------- opposing pushes cancel


def cancelled(name: str, seed: int) -> tuple[float, float, float]:
    """Share of the pushes on logits that cancels; shares of tokens pushed up in right and in wrong
    responses. Checks that the net push on a choice is d(s) pi(a|s) A(s, a)."""
    world = make_world(name, TREE, seed=seed)
    pi, visits = world.pi, world.visits
    mean = world.expected_return  # of the one prompt: the baseline of a large group
    reach = visits[:, None] * pi
    right = world.q  # rewards are 0 and 1, so Q is the probability of a right response
    net = reach * (right * (1 - mean) - (1 - right) * mean)  # E of A_i over responses with (s, a)
    size = reach * (right * (1 - mean) + (1 - right) * mean)  # of its size
    # A response moves the logits of a state by A_i times (its choice less pi), of size 2 (1 - pi).
    push = net - pi * net.sum(-1, keepdim=True)
    pushes = 2 * ((1 - pi) * size).sum()
    up = (push > 1e-15).double()
    in_right = float((reach * right * up).sum() / (reach * right).sum())
    in_wrong = float((reach * (1 - right) * up).sum() / (reach * (1 - right)).sum())
    gap = float((push - reach * world.advantages).abs().max())
    assert gap < 1e-15, gap
    return 1 - float(push.abs().sum() / pushes), in_right, in_wrong


def cancelled_table() -> str:
    rows = []
    for name in ("outcome", "key_noise"):
        found = [cancelled(name, seed) for seed in SEEDS]
        rows.append([name, *(spread([f[k] for f in found]) for k in range(3))])
    head = ["world", "share of pushes that cancel", "tokens pushed up in right responses",
            "in wrong responses"]  # fmt: skip
    return table(head, rows)


# ---------------------------------------------------------------- Pass@k as the value


def pass_at(k: int, success: Tensor) -> Tensor:
    """The probability of at least one right response of k, from that of one."""
    return 1 - (1 - success.clamp(0, 1)) ** k


def prompts_pass(world: Oracle, k: int) -> float:
    return float(pass_at(k, world.v[: world.tree.prompts]).mean())


def credit(world: Oracle, k: int) -> Tensor:
    """(S, V) expected push on the logits where V_k(s') - V_k(s) is the advantage."""
    after = pass_at(k, world.q)  # rewards are 0 and 1, at the end
    return world.visits[:, None] * world.pi * (after - (world.pi * after).sum(-1, keepdim=True))


def pass_gradient(world: Oracle, k: int) -> Tensor:
    """(S, V) d/d logits of the mean Pass@k of the prompts."""
    weight = k * (1 - world.v[: world.tree.prompts]) ** (k - 1)
    return world.gradient() * weight[world.tree.prompt][:, None]


def climbed(world: Oracle, k: int, steps: int = 20, length: float = 0.5) -> Oracle:
    for _ in range(steps):
        push = credit(world, k)
        logits = world.logits + length * push / push.norm()
        world = Oracle(FIVE, logits, world.rewards, world.coin, world.reference)
    return world


def passed(k: int, seed: int) -> tuple[float, ...]:
    """V_k as a critic: cosines with the gradients of Pass@1 and Pass@k, the share of visited
    states where V_k is within 0.01 of "a right response can still be reached", and Pass@1 and
    Pass@16 after 20 steps."""
    world = make_world("outcome", FIVE, seed=seed)
    push = credit(world, k)
    cosines = [float((push * g).sum() / push.norm() / g.norm())
               for g in (world.gradient(), pass_gradient(world, k))]  # fmt: skip
    reachable = (world.v > 0).double()
    near = ((pass_at(k, world.v) - reachable).abs() < 0.01).double()
    done = climbed(world, k)
    share = float((world.visits * near).sum() / world.visits.sum())
    return *cosines, share, prompts_pass(done, 1), prompts_pass(done, 16)


def passed_table() -> str:
    rows = []
    for k in (1, 4, 16, 64):
        found = [passed(k, seed) for seed in SEEDS]
        rows.append([str(k), *(spread([f[i] for f in found], 2) for i in range(5))])
    head = ["k", "cosine with the gradient of Pass@1", "of Pass@k", "states at the limit",
            "Pass@1 after", "Pass@16 after"]  # fmt: skip
    return table(head, rows)


# ---------------------------------------------------------------- Bayes' rule as a value


def bayes(seed: int, error: float) -> tuple[float, ...]:
    """The value that Bayes' rule gives, V(s') = V(s) p(a | s, success) / pi(a | s) from the exact
    V of the prompts, against the exact V: explained variance after one token and after three,
    the share of visited states where it exceeds 1, and the correlation of V(s') - V(s) with the
    exact advantage. `error`: the standard deviation of a normal error in the logits of
    p(. | s, success)."""
    world = make_world("outcome", FIVE, seed=seed)
    tree = world.tree
    exact = world.pi * world.q / world.v.clamp(min=1e-300)[:, None]
    draw = torch.Generator().manual_seed(seed)
    noise = error * torch.randn(exact.shape, generator=draw, dtype=torch.float64)
    oracle = (exact.clamp(min=1e-300).log() + noise).softmax(-1)
    ratio = oracle / world.pi
    value = world.v.clone()  # of the prompts; the deeper ones are overwritten
    for depth in range(1, tree.horizon):
        here = tree.level(depth)
        parent = tree.parent[here]
        value[here] = value[parent] * ratio[parent, tree.token[here]]
    explained = []
    for depth in (1, 3):
        here = tree.level(depth)
        weight = world.visits[here] / world.visits[here].sum()
        truth = world.v[here]
        variance = (weight * (truth - (weight * truth).sum()).square()).sum()
        explained.append(float(1 - (weight * (value[here] - truth).square()).sum() / variance))
    over = float((world.visits * (value > 1 + 1e-9)).sum() / world.visits.sum())
    advantage = value[:, None] * (ratio - 1)
    weight = world.visits[:, None] * world.pi
    if not error:
        gap = float((advantage - world.advantages)[world.v > 0].abs().max())
        assert gap < 1e-12, gap
    return *explained, over, correlation(advantage, world.advantages, weight)


def bayes_table() -> str:
    rows = []
    for error in (0, 0.1, 0.3, 1):
        found = [bayes(seed, error) for seed in SEEDS]
        rows.append([str(error), *(spread([f[i] for f in found], 2) for i in range(4))])
    head = ["error", "explained after one token", "after three", "states above 1",
            "correlation with the advantage"]  # fmt: skip
    return table(head, rows)


def main() -> None:
    for made in (progress_table, cancelled_table, passed_table, bayes_table):
        print(made(), "\n")


if __name__ == "__main__":
    main()
