"""`rlzoo eval`: evaluates a policy: accuracy, pass@k, maj@k, samples. No torch here."""

import argparse
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rlzoo.cli.verb import QUIET_HELP, Result
from rlzoo.errors import UsageError
from rlzoo.format.console import doing
from rlzoo.runs.disk import write_atomically
from rlzoo.runs.folder import is_run, latest_run
from rlzoo_lab.compare.eval.policy import evaluate_policy
from rlzoo_lab.view.blocks import Block, Column, Table, Text
from rlzoo_lab.view.declared import add_declared
from rlzoo_lab.view.display.run import samples
from rlzoo_lab.view.numbers import gain_text
from rlzoo_lab.view.texts import Shown
from rlzoo_lab.view.written import Written


def add_arguments(sub: argparse.ArgumentParser) -> None:
    add = sub.add_argument
    add("words", nargs="*", metavar="RUN|key=value")
    add("--out", action=Written, metavar="FILE", help="write all samples as JSON lines")
    add("--quiet", action="store_true", help=QUIET_HELP)
    add_declared(sub, "rlzoo_lab.api.verbs:evaluate")


def run(arguments: argparse.Namespace) -> Result:
    with doing("loading the model", arguments.quiet) as next_is:
        document, rows = evaluate(arguments, next_is)

    def write(path: Path) -> None:
        lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in rows)
        write_atomically(path, "".join(lines).encode())

    return Result(document, Shown(blocks(document)), notes=document["notes"], files={"out": write})


def evaluate(
    arguments: argparse.Namespace, next_is: Callable[[str], object]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The document that `--json` prints, and every sample. next_is: shows what comes next."""
    ks = sorted({_count("--k", word) for word in arguments.k.split(",")})
    shown = _count("--samples", arguments.samples, least=0)
    responses = ks[-1]
    if arguments.responses is not None:
        responses = _count("--responses", arguments.responses)
    if responses < ks[-1]:
        raise UsageError(
            f"--k: pass@{ks[-1]} needs at least {ks[-1]} responses. Got --responses {responses}"
        )
    if arguments.greedy and responses > 1:
        raise UsageError("--greedy gives each prompt one response; remove --k and --responses")
    runs = [w for w in arguments.words if is_run(w)]
    words = [w for w in arguments.words if not is_run(w)]
    if not runs and not any(re.match(r"(recipe|model|task)\b", w) for w in words):
        runs = [latest_run()]
    if arguments.prompts is not None:
        words.append(f"eval.samples={_count('--prompts', arguments.prompts)}")
    if arguments.greedy:
        words += ["eval.top_k=1", "eval.top_p=1.0"]
    if len(runs) > 1:
        raise UsageError(f"eval: accepts only one RUN. Got {', '.join(runs)}")
    if not runs and arguments.checkpoint is not None:
        raise UsageError("--checkpoint requires a RUN; for a model folder, use model.path=DIR")
    return evaluate_policy(
        runs[0] if runs else None,
        words,
        checkpoint=arguments.checkpoint,
        ks=ks,
        responses=responses,
        split=arguments.split,
        shown=shown,
        next_is=next_is,
    )


def _count(flag: str, word: str, least: int = 1) -> int:
    if not word.strip().isdecimal() or int(word) < least:
        raise UsageError(f"{flag}: must be an integer of at least {least}. Got {word!r}")
    return int(word)


def blocks(document: Mapping[str, Any]) -> list[Block]:
    """Everything that `rlzoo eval` prints of its document."""
    metrics = document["metrics"]
    who = document["run"] or document["model"]
    if document["weights"]:
        who += f" ({document['weights']}, step {document['step']})"
    asked, different = document["prompts"], metrics["eval/prompts"]
    drawn = f"{asked} " if different == asked else f"{asked} draws of {different} "
    how = "greedy" if document["top_k"] == 1 else f"temperature {document['temperature']:g}"
    shown: list[Block] = [
        Text(
            f"{who} on {document['task']}: {drawn}{document['split']} prompts, "
            f"{document['responses']} response{'s' * (document['responses'] > 1)} each, {how}",
            "strong",
        ),
        _metrics(document["k"], metrics),
    ]
    if said := document["own"]:
        low, high = said["eval_after_interval"]
        own = (
            f"the run recorded: {said['eval_metric']} {said['eval_before']:.3f} before, "
            f"{said['eval_after']:.3f} [{low:.3f}, {high:.3f}] after, on {said['eval_samples']} "
            "samples"
        )
        if said["eval_greedy_after"] is not None:
            own += "; greedy {eval_greedy_before:.3f}, then {eval_greedy_after:.3f}".format(**said)
        if said["eval_gain_interval"]:
            own += f"; {gain_text(said['eval_gain'], *said['eval_gain_interval'])}"
        shown.append(Text(own))
    if document["samples"]:
        shown.append(samples(document["samples"], "samples"))
    return shown


def _metrics(ks: list[int], metrics: Mapping[str, float]) -> Table:
    order = ["accuracy", *(f"{w}@{k}" for w in ("pass", "maj") for k in ks)]
    order += ["answer_prob", "score"]
    rows = []
    for name in order:
        if f"eval/{name}" in metrics:
            low, high = metrics[f"eval/{name}_low"], metrics[f"eval/{name}_high"]
            rows.append((name, f"{metrics[f'eval/{name}']:.3f}", f"{low:.3f} - {high:.3f}"))
    what = "accuracy" if "eval/accuracy" in metrics else "score"
    rows.append((f"greedy {what}", f"{metrics['eval/greedy']:.3f}", ""))
    rewards = [name for name in metrics if name.startswith("eval/reward/")]
    for name in rewards if len(rewards) > 1 else ():
        rows.append((name.removeprefix("eval/"), f"{metrics[name]:.3f}", ""))
    rows.append(("truncated", f"{metrics['eval/truncated']:.3f}", ""))
    rows.append(("response length", f"{metrics['eval/response_length']:.1f}", ""))
    names, values, intervals = zip(*rows, strict=True)
    return Table([Column("metric", names), Column("value", values),
                  Column("95 % interval", intervals)])  # fmt: skip
