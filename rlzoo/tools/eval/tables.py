"""The tables of `rlzoo eval`."""

from collections.abc import Mapping
from typing import Any


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
