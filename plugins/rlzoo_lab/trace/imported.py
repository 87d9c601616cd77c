"""Makes a `Trace` from an imported run: what its trainer recorded, and rlzoo's estimators on it."""

import argparse
from collections.abc import Sequence

import torch

from rlzoo.errors import RunError, UsageError
from rlzoo.mdp.batch import Batch
from rlzoo.plugin.columns import COLUMNS
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.plan import make_plan
from rlzoo.runs.folder import RunFolder, step_of
from rlzoo_lab.data.batches import read_batch, saved_batches
from rlzoo_lab.data.variants import variants
from rlzoo_lab.data.weights import words_of_import
from rlzoo_lab.trace.make import make_trace
from rlzoo_lab.trace.sources import of_step
from rlzoo_lab.trace.trace import CREDITED, Trace

# Columns of a run of rlzoo's, and what they are called where an imported run lacks them.
SHOWN = {
    "old_log_probs": "the policy's log-probs",
    "sampler_log_probs": "the sampler's log-probs",
    "ref_log_probs": "the reference's log-probs",
    "scores": "scores",
    "values": "values (no critic)",
    "advantages": "advantages",
}


def of_import(
    folder: RunFolder,
    trainer: str,
    words: Sequence[str],
    options: list[tuple[str, str]],
    zoo: Zoo,
    asked: argparse.Namespace,
) -> Trace:
    """A response of a saved batch. Estimators that `words` and `options` name are computed from
    its rewards; without any, the run's own where the trainer recorded no advantages.

    Raises UsageError for what needs the model, and for an estimator that needs another column.
    """
    if asked.prompt is not None or asked.fresh:
        raise UsageError(
            f"trace: {folder.path} was imported from {trainer} without its model, so it has only "
            "saved responses; remove --prompt and --fresh",
            kind="imported",
        )
    path = of_step(saved_batches(folder.path), asked.step)
    columns = read_batch(path)
    texts = columns.get("token_texts", {})
    batch = Batch(columns.pop("response_mask"))
    recorded = {name: columns.pop(name) for name in CREDITED if name in columns}
    recorded = recorded if "advantages" in recorded else {}
    row = slice(asked.row, asked.row + 1)
    try:
        for name, column in columns.items():
            # NaN: other responses of the step have it
            known = "log_probs" not in name or not torch.isnan(column[row]).all()
            if name in COLUMNS and known:
                batch.add(name, column)
    except ValueError as error:
        raise RunError(f"{path} is damaged: {error}") from None
    chosen = bool(options) or any(w.startswith("estimator") for w in words)
    own = words_of_import(folder, zoo)
    # Options are of the estimator that they name, or of the run's.
    recipes = variants([*own, *words], options, zoo, need_recipe=False)
    plans = [make_plan(recipe, zoo) for recipe in recipes]
    lacks = {p.estimator.name: [n for n in p.estimator.needs if n not in batch] for p in plans}
    for name, needs in lacks.items() if chosen else ():
        if needs:
            raise UsageError(
                f"estimator {name!r} needs {needs[0]!r}, which {trainer} did not record"
            )
    shown = [p for p in plans if chosen or not (recorded or lacks[p.estimator.name])]
    ids = batch["response_ids"][row]
    traced = make_trace(
        f"{folder.path}, imported from {trainer}, step {step_of(path)}",
        batch,
        shown or plans[:1],
        asked.row,
        kl_coef=None,
        texts=[texts.get(str(i), f"\u27e8{i}\u27e9") for i in ids.flatten().tolist()],
        recorded=(trainer, recorded),
        estimate=bool(shown),
    )
    there = {*batch, *recorded}
    if missing := [told for name, told in SHOWN.items() if name not in there]:
        traced.notes.append(f"{trainer} did not record {', '.join(missing)}.")
    if not texts:
        traced.response = columns["responses"][asked.row] if "responses" in columns else None
        traced.notes.append(
            "The files have token ids without their texts; import with --tokenizer FOLDER."
        )
    return traced
