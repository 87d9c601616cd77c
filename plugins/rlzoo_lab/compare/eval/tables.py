"""`rlzoo eval` as blocks: its metrics, what the run recorded, and samples."""

from collections.abc import Mapping
from typing import Any

from rlzoo_lab.view.blocks import Block, Column, Table, Text
from rlzoo_lab.view.display.run import samples
from rlzoo_lab.view.numbers import gain_text


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
