"""The tables of `rlzoo eval`."""

from collections.abc import Mapping
from typing import Any

from rlzoo_lab.view.numbers import sample_texts


def eval_tables(document: Mapping[str, Any]) -> list[Any]:
    from rich.table import Table
    from rich.text import Text

    metrics = document["metrics"]
    who = document["run"] or document["model"]
    if document["weights"]:
        who += f" ({document['weights']}, step {document['step']})"
    asked, different = document["prompts"], metrics["eval/prompts"]
    drawn = f"{asked} " if different == asked else f"{asked} draws of {different} "
    how = "greedy" if document["top_k"] == 1 else f"temperature {document['temperature']:g}"
    head = Text(
        f"{who} on {document['task']}: {drawn}{document['split']} prompts, "
        f"{document['responses']} response{'s' * (document['responses'] > 1)} each, {how}",
        style="bold",
    )
    table = Table()
    table.add_column("metric")
    table.add_column("value", justify="right")
    table.add_column("95 % interval", justify="right")
    order = ["accuracy", *(f"{w}@{k}" for w in ("pass", "maj") for k in document["k"])]
    order += ["answer_prob", "score"]
    for name in order:
        if f"eval/{name}" in metrics:
            low, high = metrics[f"eval/{name}_low"], metrics[f"eval/{name}_high"]
            table.add_row(name, f"{metrics[f'eval/{name}']:.3f}", f"{low:.3f} - {high:.3f}")
    what = "accuracy" if "eval/accuracy" in metrics else "score"
    table.add_row(f"greedy {what}", f"{metrics['eval/greedy']:.3f}", "")
    rewards = [name for name in metrics if name.startswith("eval/reward/")]
    for name in rewards if len(rewards) > 1 else ():
        table.add_row(name.removeprefix("eval/"), f"{metrics[name]:.3f}", "")
    table.add_row("truncated", f"{metrics['eval/truncated']:.3f}", "")
    table.add_row("response length", f"{metrics['eval/response_length']:.1f}", "")
    blocks: list[Any] = [head, table]
    if said := document["own"]:
        low, high = said["eval_after_interval"]
        own = (
            f"the run recorded: {said['eval_metric']} {said['eval_before']:.3f} before, "
            f"{said['eval_after']:.3f} [{low:.3f}, {high:.3f}] after, on {said['eval_samples']} "
            "samples"
        )
        if said["eval_greedy_after"] is not None:
            own += "; greedy {eval_greedy_before:.3f}, then {eval_greedy_after:.3f}".format(**said)
        blocks.append(Text(own))
    if document["samples"]:
        samples = Table(title="samples", title_justify="left")
        texts = sample_texts(document["samples"])
        for name in texts:
            samples.add_column(name, overflow="fold")
        samples.add_column("score", justify="right")
        for row in document["samples"]:
            wrong = row["truncated"] and "right" in row
            score = f"{row['score']:.2f}" + " cut" * wrong
            samples.add_row(*(Text(str(row[name])) for name in texts), score)
        blocks.append(samples)
    return blocks
