"""Five more claims, exactly: what libraries' KL terms, groups and truncated samplers do.

    python docs/studies/libraries.py [kl groups tpo prefix top_p]    seconds

docs/results.md has some of the numbers. Worlds are those of docs/studies/claims.py, in float64; a
number is the mean over ten of them and the range in brackets. The formulas were read in the code of
verl 1dda039b, TRL f2cd5771, NeMo-RL 7ea279ab, prime-rl 559b4477 and slime 624b824a, whose clamps of
large values are left out.
"""

import math
import sys
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from claims import SEEDS, TREE, spread
from common import table
from rlzoo import load_zoo
from rlzoo.mdp.noise import generator
from rlzoo_lab.kit.oracle.oracle import Oracle
from rlzoo_lab.kit.oracle.tree import Tree, visitation
from rlzoo_lab.kit.oracle.worlds import make_world

ZOO = load_zoo()
F64 = torch.float64


def drifted(world: Oracle, seed: int, size: float = 0.3) -> Tensor:
    """(S, V) logits of a sampler that is some updates behind, or of another precision."""
    noise = torch.randn(world.logits.shape, generator=generator(seed, "sampler"), dtype=F64)
    return world.logits + size * noise


def compared(pull: Tensor, exact: Tensor) -> tuple[float, float]:
    """Cosine with the exact gradient, and length by it."""
    length = float(pull.norm() / exact.norm())
    cosine = float((pull * exact).sum() / (pull.norm() * exact.norm()).clamp(min=1e-300))
    return (cosine if length > 1e-12 else math.nan), length


# ---------------------------------------------------------------- the KL term in a loss

Term = Callable[[Tensor, Tensor, Tensor], Tensor]  # log pi, log pi_old, log pi_ref -> the term
K: dict[str, Term] = {
    "k1": lambda p, o, r: p - r,
    "k2": lambda p, o, r: (p - r).square() / 2,
    "k3": lambda p, o, r: (r - p).expm1() - (r - p),
}


def once(k: Term) -> Term:
    """Times exp(x - sg(x)): 1, with the gradient of the sampling probability."""
    return lambda p, o, r: (p - p.detach()).exp() * k(p, o, r)


def weighed(k: Term) -> Term:
    return lambda p, o, r: (p - o).exp() * k(p, o, r)


def through_k2(k: Term) -> Term:
    k2 = K["k2"]
    return lambda p, o, r: k2(p, o, r) - k2(p, o, r).detach() + k(p, o, r).detach()


TERMS: dict[str, Term] = {
    "k1: verl `kl`, slime `k1`, NeMo-RL before 2506": K["k1"],
    "k2: verl `mse`, slime `k2`, NeMo-RL before 2506": K["k2"],
    "k3: verl `low_var_kl`, slime `k3`, TRL before 6503, NeMo-RL before 2506": K["k3"],
    "verl `k1+`, `k3+`": through_k2(K["k3"]),
    "TRL since 6503, slime `k3` with `use_unbiased_kl`": weighed(K["k3"]),
    "slime `k1` with `use_unbiased_kl`": weighed(K["k1"]),
    "slime `k2` with `use_unbiased_kl`": weighed(K["k2"]),
    "NeMo-RL since 2506, `k1`": once(K["k1"]),
    "NeMo-RL since 2506, `k2`": once(K["k2"]),
    "NeMo-RL since 2506, `k3`": once(K["k3"]),
}


def pull_of(term: Term, world: Oracle, old: Tensor, reference: Tensor) -> Tensor:
    """(S, V) the mean gradient of a term over the samples of softmax(old)."""
    logits = world.logits.clone().requires_grad_()
    log_old = old.log_softmax(-1)
    weight = visitation(world.tree, log_old.exp())[:, None] * log_old.exp()
    values = term(logits.log_softmax(-1), log_old, reference.log_softmax(-1))
    return torch.autograd.grad((weight * values).sum(), logits)[0]


def state_kl(world: Oracle, old: Tensor, reference: Tensor) -> Tensor:
    """(S, V) the gradient of the mean KL(pi || reference) of the states that the sampler visits."""
    logits = world.logits.clone().requires_grad_()
    log_pi = logits.log_softmax(-1)
    kl = (log_pi.exp() * (log_pi - reference.log_softmax(-1))).sum(-1)
    visits = visitation(world.tree, old.softmax(-1))
    return torch.autograd.grad((visits * kl).sum(), logits)[0]


def kl_table() -> str:
    """Against the per-state KL, where the sampler is the policy and where it is behind."""
    worlds = [make_world("graded", TREE, seed=seed) for seed in SEEDS]
    olds = [drifted(world, seed) for seed, world in enumerate(worlds)]
    rows = []
    for name, term in TERMS.items():
        cells = []
        for samplers in ([world.logits for world in worlds], olds):
            pairs = [
                compared(pull_of(term, w, o, w.reference), state_kl(w, o, w.reference))
                for w, o in zip(worlds, samplers, strict=True)
            ]
            none = all(length < 1e-12 for _, length in pairs)
            cells += ["none" if none else spread([pair[i] for pair in pairs], 2) for i in (0, 1)]
        rows.append([name, *cells])
    pairs = [
        compared(pull_of(lambda p, o, r: (p - o).square(), w, o, o), state_kl(w, o, o))
        for w, o in zip(worlds, olds, strict=True)
    ]
    to_old = [spread([pair[i] for pair in pairs], 2) for i in (0, 1)]
    rows.append(["prime-rl `kl_tau`: log(r)^2, against KL(pi, mu)", "none", "none", *to_old])
    head = ["term", "cosine, on policy", "length", "cosine, sampler behind", "length"]
    return table(head, rows)


# ---------------------------------------------------------------- groups


def group_row(p: float, size: int = 8) -> list[str]:
    """A prompt solved with probability p, in groups with k = 0 .. size right responses: the mean
    advantage of a right response where the group is mixed, and the mean gradient in the logit of
    being right, next to the true p (1 - p)."""
    mixed = kept = 0.0
    pull = dict.fromkeys(("dr_grpo", "grpo"), 0.0)
    for k in range(size + 1):
        chance = math.comb(size, k) * p**k * (1 - p) ** (size - k)
        rewards = torch.tensor([1.0] * k + [0.0] * (size - k), dtype=F64)
        columns = {
            "sequence_rewards": rewards,
            "response_mask": torch.ones(size, 1, dtype=F64),
            "group_ids": torch.zeros(size, dtype=torch.long),
        }
        for name in pull:
            advantages = ZOO.estimators[name](columns)["advantages"][:, 0]
            pull[name] += chance * float((advantages * (rewards - p)).mean())
        if 0 < k < size:
            kept += chance
            mixed += chance * (1 - k / size)
    factors = [f"{x / (p * (1 - p)):.3f}" for x in pull.values()]
    return [f"{p:g}", f"{1 - p:.3f}", f"{mixed / kept:.3f}", f"{kept:.3f}", *factors]


def groups_table() -> str:
    head = ["p", "true advantage", "mean in mixed groups of 8", "share of these",
            "gradient by the true one, dr_grpo", "grpo"]  # fmt: skip
    return table(head, [group_row(p) for p in (0.05, 0.2, 0.5, 0.8, 0.95)])


# ---------------------------------------------------------------- TPO's coefficients


def coefficient(name: str, p: float, tokens: int = 5) -> float:
    """c where the mean gradient in the logits of one state is c (1[right] - pi), p = pi(right)."""
    pi = torch.full((tokens,), (1 - p) / (tokens - 1), dtype=F64)
    pi[0] = p
    logits = pi.log().requires_grad_()
    log_pi = logits.log_softmax(-1)
    right = torch.eye(tokens, dtype=F64)[0]
    columns = {"log_probs": log_pi[:, None], "advantages": right[:, None]}
    weight = pi  # of each token as a sample
    if name == "grpo":
        columns["advantages"] = ((right - p) / math.sqrt(p * (1 - p)))[:, None]
        loss = "reinforce"
    elif name == "tpo":  # every token is a candidate once
        loss, weight = "tpo", torch.full((tokens,), 1 / tokens, dtype=F64)
        columns |= {
            "old_log_probs": log_pi.detach()[:, None],
            "response_mask": torch.ones(tokens, 1, dtype=F64),
            "group_ids": torch.zeros(tokens, dtype=torch.long),
        }
    else:
        loss = name
    per_token = ZOO.policy_losses[loss](columns)[0][:, 0]
    (pull,) = torch.autograd.grad(-(weight * per_token).sum(), logits)
    found = float(pull[0] / (1 - p))
    assert torch.allclose(pull, found * (right - pi), atol=1e-12, rtol=0)
    return found


COEFFICIENTS: dict[str, Callable[[float], float]] = {  # as the paper has them, lambda = e
    "reinforce": lambda p: p,
    "delightful": lambda p: p / (1 + p),
    "grpo": lambda p: math.sqrt(p / (1 - p)),
    "tpo": lambda p: p * (math.e - 1) / (1 - p + math.e * p),
}


def tpo_table() -> str:
    rows, worst = [], 0.0
    for p in (0.01, 0.1, 0.5, 0.9, 0.99):
        ours = {name: coefficient(name, p) for name in COEFFICIENTS}
        worst = max(worst, *(abs(ours[n] - f(p)) for n, f in COEFFICIENTS.items()))
        rows.append([f"{p:g}", *(f"{x:.4f}" for x in ours.values())])
    head = ["p", "REINFORCE", "delightful", "GRPO, a large group", "TPO, lambda = e"]
    return f"{table(head, rows)}\n\nWorst distance from the formulas: {worst:.0e}"


# ---------------------------------------------------------------- weights of a prefix


def episodes(tree: Tree) -> Iterator[list[tuple[int, int]]]:
    """Every complete episode: its (state, token) pairs."""
    for state, token in (tree.child < 0).nonzero().tolist():
        path = [(state, token)]
        while (above := int(tree.parent[path[0][0]])) >= 0:
            path.insert(0, (above, int(tree.token[path[0][0]])))
        yield path


LEVELS = ("sequence", "prefix", "token")


def weights_of(world: Oracle, sampler: Tensor) -> dict[str, tuple[float, float, float]]:
    """level -> cosine and length of the mean gradient by the exact one, and the gradient's variance
    (its trace): samples of softmax(sampler), exact advantages."""
    log_mu, out = sampler.log_softmax(-1), {}
    size = (1 - 2 * world.pi + world.pi.square().sum(-1, keepdim=True)) * world.advantages.square()
    mean = {level: torch.zeros_like(world.logits) for level in LEVELS}  # of w A 1[a], by choice
    square = dict.fromkeys(LEVELS, 0.0)
    for path in episodes(world.tree):
        state, token = map(torch.tensor, zip(*path, strict=True))
        gap = (world.log_pi - log_mu)[state, token]
        chance = float(log_mu[state, token].sum().exp())
        logs = {"sequence": gap.sum().expand(len(path)), "prefix": gap.cumsum(0), "token": gap}
        for level, log in logs.items():
            w = log.exp()
            mean[level][state, token] += chance * w * world.advantages[state, token]
            square[level] += chance * float((w.square() * size[state, token]).sum())
    exact = world.gradient()
    for level, push in mean.items():
        pull = push - world.pi * push.sum(-1, keepdim=True)
        variance = square[level] - float(pull.square().sum())
        out[level] = (*compared(pull, exact), variance)
    return out


def prefix_table() -> str:
    found = []
    for seed in SEEDS:
        world = make_world("graded", TREE, seed=seed)
        found.append(weights_of(world, drifted(world, seed)))
    rows = []
    for level in LEVELS:
        cells = [spread([each[level][i] for each in found], 3) for i in (0, 1)]
        ratio = [each[level][2] / each["sequence"][2] for each in found]
        rows.append([level, *cells, spread(ratio, 2)])
    return table(["weight", "cosine", "length", "variance by that of sequence"], rows)


# ---------------------------------------------------------------- top-p


def truncated(pi: Tensor, top_p: float) -> Tensor:
    """(S, V) the fewest likely tokens that hold `top_p`, renormalized; and the kept mass (S,)."""
    order = pi.sort(-1, descending=True)
    before = order.values.cumsum(-1) - order.values
    keep = torch.zeros_like(pi).scatter(-1, order.indices, (before < top_p).double())
    return pi * keep


def top_p_row(top_p: float) -> list[str]:
    """Means over what the truncated sampler visits: the kept mass S, which is every token's ratio;
    the share of bad tokens that PPO's clip at 0.2 gives no gradient, because S < 0.8; and the
    gradient of the truncated samples without a weight by the exact one."""
    cells = []
    for seed in SEEDS:
        world = make_world("graded", TREE, seed=seed)
        part = truncated(world.pi, top_p)
        kept = part.sum(-1, keepdim=True)
        mu = part / kept
        reach = visitation(TREE, mu)[:, None] * mu
        bad = reach * (world.advantages < 0)
        lost = (bad * (kept < 0.8)).sum() / bad.sum()
        push = reach * world.advantages
        pull = push - world.pi * push.sum(-1, keepdim=True)
        mass = (reach * kept).sum() / reach.sum()
        cells.append((float(mass), float(lost), *compared(pull, world.gradient())))
    return [f"{top_p:g}", *(spread([c[i] for c in cells], 2) for i in range(4))]


def top_p_table() -> str:
    head = ["top-p", "kept mass", "bad tokens clipped at once", "cosine", "length"]
    return table(head, [top_p_row(p) for p in (0.5, 0.8, 0.9, 0.99, 1.0)])


TABLES = {
    "kl": kl_table, "groups": groups_table, "tpo": tpo_table, "prefix": prefix_table,
    "top_p": top_p_table,
}  # fmt: skip

if __name__ == "__main__":
    for name in sys.argv[1:] or TABLES:
        print(TABLES[name](), "\n")
