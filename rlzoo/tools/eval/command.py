"""`rlzoo eval`: how good a policy is: accuracy, pass@k, maj@k, samples.  No torch here."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

from rlzoo.at_k import majority_at_k, pass_at_k, share_interval
from rlzoo.component import RlzooError, needs_of
from rlzoo.stats import mean_interval

DEFAULT_SHOWN = 6


class EvalError(RlzooError):
    """An evaluation that cannot be made, and what would make it possible."""


# ---------------------------------------------------------------- command line


def add_arguments(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("words", nargs="*", metavar="RUN|key=value")
    sub.add_argument(
        "--checkpoint", metavar="WHICH", help="of a RUN: best, last, or a checkpoint's step"
    )
    sub.add_argument("--prompts", metavar="N", help="how many prompts; short for eval.samples=N")
    sub.add_argument(
        "--k", default="1", metavar="K,...", help="pass@k and maj@k; the largest is drawn"
    )
    sub.add_argument(
        "--responses", metavar="N", help="responses to each prompt, if more than the largest k"
    )
    sub.add_argument("--greedy", action="store_true", help="the likeliest token each time")
    sub.add_argument("--split", default="test", metavar="NAME", help="of the task: test or train")
    sub.add_argument(
        "--samples", default=str(DEFAULT_SHOWN), metavar="N", help="samples that are shown"
    )
    sub.add_argument("--out", metavar="FILE", help="all samples, as JSON lines")


def command(arguments: argparse.Namespace) -> int:
    # With --json stdout carries one document: whatever a plugin prints goes to stderr.
    with redirect_stdout(sys.stderr) if arguments.json else nullcontext():
        document, rows = find(arguments)
    if arguments.out:
        _write(Path(arguments.out), rows)
    if arguments.json:
        print(json.dumps(document, indent=1, ensure_ascii=False, default=str))
        return 0
    from rich.console import Console

    console = Console()
    for part in show(document):
        console.print(part)
    if arguments.out:
        text = f"{len(rows)} samples: {arguments.out}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    return 0


def find(arguments: argparse.Namespace) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the command line asks for: what `--json` prints, and every sample."""
    ks = sorted({_count("--k", word) for word in arguments.k.split(",")})
    shown = _count("--samples", arguments.samples, least=0)
    responses = (
        ks[-1] if arguments.responses is None else _count("--responses", arguments.responses)
    )
    if responses < ks[-1]:
        raise EvalError(f"--k: pass@{ks[-1]} needs as many responses. Got --responses {responses}")
    if arguments.greedy and responses > 1:
        raise EvalError("--greedy gives each prompt one response: leave --k and --responses out")
    runs = [w for w in arguments.words if "=" not in w]
    words = [w for w in arguments.words if "=" in w]
    if arguments.prompts is not None:
        words.append(f"eval.samples={_count('--prompts', arguments.prompts)}")
    if arguments.greedy:
        words += ["rollout.top_k=1", "rollout.top_p=1.0"]
    if len(runs) > 1:
        raise EvalError(f"eval: one RUN at a time. Got {', '.join(runs)}")
    if not runs and arguments.checkpoint is not None:
        raise EvalError("--checkpoint is for a RUN; a model folder is model.path=DIR")
    if arguments.out and not Path(arguments.out).resolve().parent.is_dir():
        raise EvalError(f"--out: there is no folder {Path(arguments.out).resolve().parent}")
    return evaluate_policy(
        runs[0] if runs else None,
        words,
        checkpoint=arguments.checkpoint,
        ks=ks,
        responses=responses,
        split=arguments.split,
        shown=shown,
    )


def _count(flag: str, text: str, least: int = 1) -> int:
    if not text.strip().isdecimal() or int(text) < least:
        raise EvalError(f"{flag}: must be a whole number from {least}. Got {text!r}")
    return int(text)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    lines = "".join(json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
    try:
        path.write_text(lines, encoding="utf-8")
    except OSError as error:
        raise EvalError(f"--out: cannot write {path}: {error.strerror}") from None


# ---------------------------------------------------------------- evaluating


def evaluate_policy(
    run: str | None,
    words: list[str],
    *,
    checkpoint: str | None = None,
    ks: list[int],
    responses: int,
    split: str = "test",
    shown: int = DEFAULT_SHOWN,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Score the policy of a run folder, or of a recipe's or the defaults' keys; every sample.

    With one response a prompt it is what a run's own evaluation gives, sample by sample.
    """
    from rlzoo.plan import make_plan
    from rlzoo.recipe import compose
    from rlzoo.registry import load_zoo
    from rlzoo.runs import open_folder
    from rlzoo.weights import choose

    zoo = load_zoo()
    weights = folder = None
    if run is not None:
        for word in words:
            if word.split("=", 1)[0] in ("recipe", "model", "model.name", "model.path"):
                raise EvalError(f"eval: {run} brings its own; leave {word} out")
        folder = open_folder(run)
        weights = choose(folder, checkpoint)
        words = [f"recipe={folder.path / 'recipe.yaml'}", *weights.words(), *words]
    # A run's loggers are none of an evaluation's affair, nor whether they are installed.
    recipe = compose([*words, "loggers=[]"], zoo, need_recipe=False)
    plan = make_plan(recipe, zoo)
    config = recipe.config
    if ks[-1] > 1 and not hasattr(plan.task, "is_correct"):
        raise EvalError(
            f"--k: task {plan.task_name!r} has no is_correct, so nothing passes or wins a vote"
        )
    from rlzoo.build import build_policy
    from rlzoo.world import World

    policy = build_policy(config)
    if weights is not None:
        weights.load_into(policy.model)
    world = World(plan, policy, seed=config.seed)
    prompts = config.eval.samples
    rows = list(_samples(world, prompts, responses, split))
    document: dict[str, Any] = {
        "run": None if folder is None else str(folder.path),
        "weights": None if weights is None else weights.name,
        "step": None if weights is None else weights.step,
        "model": config.model.name or config.model.path if weights is None else str(weights.path),
        "task": plan.task_name,
        "split": split,
        "prompts": prompts,
        "responses": responses,
        "k": ks,
        "temperature": config.rollout.temperature,
        "top_k": config.rollout.top_k,
        "top_p": config.rollout.top_p,
        "max_new_tokens": config.rollout.max_new_tokens,
        "seed": config.seed,
        "metrics": metrics(rows, prompts, responses, ks) | {"eval/tokens": world.tokens},
        "own": None if folder is None else _own(folder.summary()),
        "samples": _spread(rows, shown, prompts),
    }
    return document, rows


def _samples(world: Any, prompts: int, responses: int, split: str) -> Iterator[dict[str, Any]]:
    """A row for each response: all prompts once, then once more, ..."""
    from rlzoo.evaluate import held_out, right_rows

    extract = getattr(world.plan.task, "extract", None)
    number = 0
    for batch in held_out(world, prompts, responses, split=split):
        right = right_rows(world.plan, batch)
        answers = batch["responses"]
        if extract is not None:
            answers = extract(*(batch[name] for name in needs_of(extract)))
        for i in range(batch.rows):
            row = {
                "prompt_number": number % prompts,
                "response_number": number // prompts,
                "prompt": batch["prompts"][i],
                "response": batch["responses"][i],
                "answer": batch["answers"][i],
                "score": batch["sequence_scores"][i].item(),
                "truncated": bool(batch["truncated"][i]),
                "length": int(batch["response_mask"][i].sum()),
            }
            parts = batch["score_components"][i].tolist()
            row["rewards"] = dict(zip(world.plan.rewards, parts, strict=True))
            if right is not None:
                row["right"] = bool(right[i])
                # What is cut off is no answer: it votes for nothing.
                row["vote"] = answers[i] if batch["terminated"][i] else None
            yield row
            number += 1


def metrics(
    rows: list[dict[str, Any]], prompts: int, responses: int, ks: list[int]
) -> dict[str, Any]:
    """The numbers of an evaluation's line, and pass@k and maj@k; intervals are over prompts."""
    groups = [rows[i::prompts] for i in range(prompts)]  # by prompt

    def mean(name: str) -> float:
        return sum(row[name] for row in rows) / len(rows)

    out: dict[str, Any] = {"eval/score": mean("score")}
    by_prompt = [sum(row["score"] for row in group) / responses for group in groups]
    out["eval/score_low"], out["eval/score_high"] = mean_interval(by_prompt)
    for name in rows[0]["rewards"]:
        out[f"eval/reward/{name}"] = sum(row["rewards"][name] for row in rows) / len(rows)
    if "right" in rows[0]:
        shares: dict[str, list[float]] = {
            "eval/accuracy": [sum(row["right"] for row in group) / responses for group in groups]
        }
        for k in ks if ks != [1] else ():
            counts = [sum(row["right"] for row in group) for group in groups]
            shares[f"eval/pass@{k}"] = [pass_at_k(responses, c, k) for c in counts]
            if k == 1:  # the majority of one
                continue
            shares[f"eval/maj@{k}"] = [
                majority_at_k([row["vote"] for row in g], [row["right"] for row in g], k)
                for g in groups
            ]
        for name, found in shares.items():
            out[name] = sum(found) / prompts
            out[f"{name}_low"], out[f"{name}_high"] = share_interval(found, responses)
    out["eval/samples"] = len(rows)
    out["eval/response_length"] = mean("length")
    out["eval/truncated"] = mean("truncated")
    return out


def _own(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the run said of itself."""
    if not summary:
        return None
    names = [f"eval_{what}{more}" for what in ("before", "after") for more in ("", "_interval")]
    return {name: summary[name] for name in ("eval_metric", "eval_samples", *names)}


def _spread(rows: list[dict[str, Any]], n: int, prompts: int) -> list[dict[str, Any]]:
    """n of the first responses, spread over the prompts."""
    n = min(n, prompts)
    return [rows[i * prompts // n] for i in range(n)]


# ---------------------------------------------------------------- showing


def show(document: Mapping[str, Any]) -> list[Any]:
    from rich.table import Table
    from rich.text import Text

    found = document["metrics"]
    who = document["run"] or document["model"]
    if document["weights"]:
        who += f" ({document['weights']}, step {document['step']})"
    how = "greedy" if document["top_k"] == 1 else f"temperature {document['temperature']:g}"
    head = Text(
        f"{who} on {document['task']}: {document['prompts']} {document['split']} prompts, "
        f"{document['responses']} response{'s' * (document['responses'] > 1)} each, {how}",
        style="bold",
    )
    table = Table()
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    order = ["accuracy", *(f"{w}@{k}" for w in ("pass", "maj") for k in document["k"]), "score"]
    for name in order:
        if f"eval/{name}" in found:
            low, high = found[f"eval/{name}_low"], found[f"eval/{name}_high"]
            table.add_row(name, f"{found[f'eval/{name}']:.3f}", f"{low:.3f} - {high:.3f}")
    rewards = [name for name in found if name.startswith("eval/reward/")]
    for name in rewards if len(rewards) > 1 else ():
        table.add_row(name.removeprefix("eval/"), f"{found[name]:.3f}", "")
    table.add_row("truncated", f"{found['eval/truncated']:.3f}", "")
    table.add_row("response length", f"{found['eval/response_length']:.1f}", "")
    parts: list[Any] = [head, table]
    own = document["own"]
    if own:
        low, high = own["eval_after_interval"]
        parts.append(
            Text(
                f"the run itself said: {own['eval_metric']} {own['eval_before']:.3f} before, "
                f"{own['eval_after']:.3f} [{low:.3f}, {high:.3f}] after, on "
                f"{own['eval_samples']} prompts"
            )
        )
    if document["samples"]:
        samples = Table(title="samples", title_justify="left")
        for name in ("prompt", "response", "answer"):
            samples.add_column(name, overflow="fold")
        samples.add_column("score", justify="right")
        for row in document["samples"]:
            texts = (Text(str(row[name])) for name in ("prompt", "response", "answer"))
            samples.add_row(*texts, f"{row['score']:.2f}" + " cut" * row["truncated"])
        parts.append(samples)
    return parts
