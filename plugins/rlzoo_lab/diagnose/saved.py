"""`rlzoo diagnose RUN`: many estimators on the same saved batch.

The truth is unknown here. This reports how similar estimators are, token by token, and whether
their gradients point in the same direction.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RunError
from rlzoo.lm.build import build_policy
from rlzoo.plugin.border import Bound
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.compose import TRUST, compose
from rlzoo.recipe.plan import make_plan
from rlzoo.step.columns import whitened
from rlzoo_lab.data.batches import read_batch, saved_batches
from rlzoo_lab.data.variants import variants
from rlzoo_lab.data.weights import open_own
from rlzoo_lab.data.words import quoted
from rlzoo_lab.diagnose.credit import first_gradient
from rlzoo_lab.diagnose.setting import row_head
from rlzoo_lab.diagnose.tables import estimators, name_of, two_digits, undiagnosable
from rlzoo_lab.kit.oracle.episodes import supply
from rlzoo_lab.view.blocks import Block, Text, column


def diagnose_run(path: str, words: list[str], *, parameters: bool = False) -> dict[str, Any]:
    """The document that `--json` prints; it compares the others with the first estimator.

    words: estimator=... and options; by default, the run's estimator and then all others.
    """
    folder = open_own(path, "tokens")
    zoo = load_zoo()
    base = [f"recipe={folder.path / 'recipe.yaml'}"]
    plan = make_plan(compose(base, zoo), zoo)
    if not (files := saved_batches(folder.path)):
        raise RunError(f"{folder.path} contains no batch; train with run.save_batches=1")
    file, batch = files[-1], read_batch(files[-1])
    recipes = variants([*base, *words], [], zoo)
    if not words:  # the run's options stay its own: a sweep would reset none of the others
        others = ",".join(name for name in zoo.estimators if name != plan.estimator.name)
        recipes += variants([*base, f"estimator={others}"], [], zoo)
    mask = batch["response_mask"]
    rows: list[dict[str, Any]] = []
    undone: list[dict[str, Any]] = []
    advantages, pulls = [], []

    for recipe in recipes:
        chosen = zoo.estimators[recipe.config.estimator.name]
        estimator = Bound.of(chosen, recipe.options("estimator"))
        columns = dict(batch)
        missing = supply(zoo, estimator.needs, columns)
        if missing:
            undone.append({"estimator": chosen.name, "needs": missing})
            continue
        raw = estimator(columns)["advantages"]
        pulls.append(first_gradient(plan, batch, whitened(plan, batch, raw)))
        a = raw[mask.bool()].double()
        advantages.append(a)
        rows.append(
            {
                **row_head(estimator, words),
                "mean": a.mean().item(),
                "variance": a.var(correction=0).item(),
                "zeros": (a == 0).double().mean().item(),
                "positive": (a > 0).double().mean().item(),
            }
        )
    if not rows:
        raise RunError(f"{file}: no estimator can be evaluated: {undone[0]['needs'][0]} is missing")
    centred = torch.stack(advantages)  # (estimators, tokens)
    centred -= centred.mean(1, keepdim=True)
    document = {
        "run": str(folder.path),
        "batch": file.name,
        "rows": mask.shape[0],
        "tokens": int(mask.sum()),
        "estimators": rows,
        "correlation": _cosines(centred),
        "gradient_cosine": _cosines(torch.stack([pull.flatten() for pull in pulls])),
        "not_diagnosable": undone,
    }
    if parameters:
        model = folder.path / "model"
        if not (model / "config.json").is_file():
            raise RunError(
                f"{model} does not exist, because the run has not finished; remove --parameters"
            )
        said = [*base, *(w for w in words if w.startswith(TRUST))]
        document["parameter_cosine"] = _cosines(_in_parameters(said, model, zoo, batch, pulls))
    return document


def _in_parameters(
    base: list[str], model: Path, zoo: Zoo, batch: Mapping[str, Any], pulls: list[Tensor]
) -> Tensor:
    """(N, parameters) the gradients of the run's final policy."""
    config = compose([*base, f"model.path={quoted(model)}", "device=cpu"], zoo).config
    policy = build_policy(config)
    weights = [p for p in policy.model.parameters() if p.requires_grad]
    with torch.enable_grad():
        log_probs = policy.log_prob_stats(batch)["log_probs"]
        rows = []
        for pull in pulls:
            grads = torch.autograd.grad(log_probs, weights, pull.to(log_probs), retain_graph=True)
            rows.append(torch.cat([g.flatten() for g in grads]))
    return torch.stack(rows)


def _cosines(x: Tensor) -> list[list[float]]:
    """Between rows (N, tokens); 0 with a row of zeros."""
    unit = x.double() / x.double().norm(dim=1, keepdim=True).clamp(min=1e-300)
    return (unit @ unit.T).tolist()


def blocks_of_run(document: Mapping[str, Any]) -> list[Block]:
    rows = document["estimators"]
    likeness = {"corr": "correlation", "cos": "gradient_cosine", "cos θ": "parameter_cosine"}
    likeness = {head: key for head, key in likeness.items() if key in document}
    columns = [
        column("mean", (row["mean"] for row in rows), two_digits),
        column("var", (row["variance"] for row in rows), two_digits),
        column("zero", (row["zeros"] for row in rows), "{:.0%}".format),
        column("> 0", (row["positive"] for row in rows), "{:.0%}".format),
        *(column(head, document[key][0], "{:.3f}".format) for head, key in likeness.items()),
    ]
    head = (
        f"{document['run']}, {document['batch']}: {document['rows']} rows, "
        f"{document['tokens']:,} tokens; advantages before whitening"
    )
    where = "in the log-probs of the tokens"
    if "parameter_cosine" in document:
        where += ", and (θ) in the parameters of the run's final model"
    first = name_of(rows[0])
    note = (
        f"corr: correlation of advantages with those of {first}; "
        f"cos: cosine of the loss's gradients, {where}"
    )
    notes = [note, *undiagnosable(document)]
    return [Text(head), estimators(rows, columns), *(Text(line, "faint") for line in notes)]
