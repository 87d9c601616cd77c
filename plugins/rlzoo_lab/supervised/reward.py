"""`rlzoo model reward`: a reward model from preference pairs; from judged steps or outcomes,
`process_reward` and `implicit_reward`.

From pairs it is a transformers sequence classifier with one label, which scores a whole prompt and
response; `reward_models` encodes and scores for it. No torch at module level.
"""

import argparse
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rlzoo.cli.verb import Result
from rlzoo.errors import UsageError
from rlzoo_lab.stats import mean_interval
from rlzoo_lab.supervised import fit, implicit_reward, options, process_reward
from rlzoo_lab.supervised.fit import TokenIds
from rlzoo_lab.supervised.pairs import Preference, read_preferences, read_solutions, read_verdicts

READERS = (read_preferences, read_solutions, read_verdicts)
ALL = tuple(dict.fromkeys(name for read in READERS for name in read.columns))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_arguments(parser, ALL, lr=1e-5)
    kind = parser.add_mutually_exclusive_group()
    add, flag = parser.add_argument, "store_true"
    kind.add_argument(
        "--per-step",
        action=flag,
        help="train on the columns prompt, completions (steps) and labels",
    )
    kind.add_argument(
        "--implicit", action=flag, help="train on outcomes: prompt, completion and label"
    )
    add(
        "--separator",
        metavar="TEXT",
        help="--per-step: the text after each step (default: a newline)",
    )
    options.add_chat(parser, "--implicit: which prompts use the chat template, as in sft")
    add("--beta", type=float, metavar="X", help="--implicit: r = beta x the log-ratio (0.05)")


def run(arguments: argparse.Namespace) -> Result:
    a = arguments
    columns = READERS[1 if a.per_step else 2 if a.implicit else 0].columns
    other = {"separator": a.per_step, "beta": a.implicit, "chat": a.implicit}
    other |= {n: n in columns for n in ALL}
    for name, read in other.items():
        if getattr(a, name) is not None and not read:
            raise UsageError(f"--{name} has no effect here; the rows are {', '.join(columns)}")
    if a.per_step:
        a.separator = a.separator or "\n"
        return fit.run(a, process_reward.KIND)
    if not a.implicit:
        return fit.run(a, KIND)
    a.beta = 0.05 if a.beta is None else a.beta
    if not 0 < a.beta < math.inf:
        raise UsageError(f"--beta must be positive and finite. Got {a.beta}")
    return fit.run(a, implicit_reward.KIND)


def judged(margins: Sequence[float]) -> dict[str, Any]:
    """How often the preferred response has the higher score. log_loss: mean of -log
    sigmoid(margin), 0.693 for guessing: it grows where the model is sure and wrong."""
    n = len(margins)
    right = sum(1.0 if m > 0 else 0.5 if m == 0 else 0.0 for m in margins)
    return {
        "pairs": n,
        **fit.accuracy(right, n),
        "log_loss": sum(max(-m, 0) + math.log1p(math.exp(-abs(m))) for m in margins) / n,
        "margin": sum(margins) / n,
        "margin_interval": list(mean_interval(list(margins))),
    }


def learner(arguments: argparse.Namespace, start: fit.Start) -> fit.Learner:
    """A reward model: the Bradley-Terry loss, -log sigmoid(r(chosen) - r(rejected)).
    Source: Bradley and Terry 1952, doi:10.2307/2334029; Ouyang et al. 2022, arXiv:2203.02155.
    """
    import torch
    from transformers import set_seed

    from rlzoo_lab.supervised.reward_models import encode, inputs, score

    set_seed(arguments.seed)  # of the new head
    model, tokenizer = new(start.folder, options.chat_args(arguments))

    def encoded(pair: Preference) -> TokenIds:
        chosen, rejected = (encode(tokenizer, pair.prompt, x) for x in (pair.chosen, pair.rejected))
        return chosen, rejected

    def collate(items: list[TokenIds]) -> dict[str, Any]:
        both = [chosen for chosen, _ in items] + [rejected for _, rejected in items]
        return inputs(both, model, model.config.get_text_config().pad_token_id)

    def loss(model: Any, given: dict[str, Any]) -> Any:
        chosen, rejected = model(**given).logits[:, 0].float().chunk(2)
        return -torch.nn.functional.logsigmoid(chosen - rejected).mean()

    def report(_: fit.Rows, tests: fit.Rows) -> dict[str, Any]:
        scores = [score(model, side, arguments.batch) for side in zip(*tests, strict=True)]
        both = torch.cat(scores)
        spread = {"mean": both.mean().item(), "std": both.std(correction=0).item()}
        return {"held_out": judged((scores[0] - scores[1]).tolist()), "score": spread}

    longer = lambda ids: max(map(len, ids))  # noqa: E731
    return fit.Learner(model, tokenizer, encoded, longer, collate, loss, report)


def new(folder: Path, chat_args: dict[str, Any] | None = None) -> tuple[Any, Any]:
    """(model, tokenizer): the network in `folder` under a new head of one label. chat_args:
    arguments of the chat template."""
    from rlzoo_lab.supervised.reward_models import make

    model, tokenizer = make(folder, chat_args=chat_args)
    # A score is read at the last token that is not padding: padding by EOS would hide it.
    tokenizer.padding_side = "right"
    if tokenizer.pad_token_id in (None, tokenizer.eos_token_id):
        tokenizer.add_special_tokens({"pad_token": "<|pad|>"})
        if len(tokenizer) > model.get_input_embeddings().num_embeddings:
            model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    model.config.get_text_config().pad_token_id = tokenizer.pad_token_id
    return model, tokenizer


def _shown(report: dict[str, Any]) -> Iterator[str]:
    held = report["held_out"]
    yield fit.accuracy_text(held, "pair ")
    yield from fit.no_better(report)
    yield (
        f"log loss {held['log_loss']:.3f}, mean margin {held['margin']:.2f}, scores "
        f"{report['score']['mean']:.2f} ± {report['score']['std']:.2f}"
    )


KIND = fit.Kind("reward", "pair", read_preferences, learner, _shown)
