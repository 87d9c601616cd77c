"""Imported responses as the batches that `run.save_batches` saves. Imports torch."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rlzoo.errors import RlzooError, first_line
from rlzoo.mdp.rules import token_texts
from rlzoo.ops import at_last_action
from rlzoo.runs.disk import write_json
from rlzoo_lab.imports.tokens import Responses

BATCHES = 4  # the last steps whose tokens are kept: as many as `rlzoo report` shows
MOST = 2**26  # cells of a column (B, T)
WHOLE = ("advantages", "returns", "values")  # kept only if every response has them


def write_batches(
    place: Path, steps: Mapping[int, Responses], tokenizer: Path | None, paid_kl: bool,
    notes: list[str],
) -> list[int]:  # fmt: skip
    """Write the last steps' batches; returns those steps. paid_kl: the reward contains a KL that
    the files do not have, so that scores are not rewards."""
    written = []
    for step in list(steps)[-BATCHES:]:
        rows = steps[step]
        width = max(len(t.ids) for _, t in rows)
        if not 0 < len(rows) * width <= MOST:
            notes.append(f"step {step}: {len(rows)} responses of up to {width:,} tokens are not "
                         "saved as a batch")  # fmt: skip
            continue
        columns, texts = _batch(rows, paid_kl)
        if tokenizer is not None:
            texts["token_texts"] = _texts(tokenizer, columns["response_ids"].unique().tolist())
        file = place / "batches" / f"step-{step:08d}.safetensors"
        file.parent.mkdir(exist_ok=True)
        save_file(columns, file)
        write_json(file.with_suffix(".json"), texts)
        written.append(step)
    return written


def _batch(rows: Responses, paid_kl: bool) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(tensors, lists) of a batch: what all responses have. NaN: a log-prob that others have."""
    found, samples = [t for _, t in rows], [s for s, _ in rows if s is not None]

    def wide(parts: Sequence[Any]) -> Tensor:
        return pad_sequence([torch.as_tensor(part) for part in parts], batch_first=True)

    columns = {"response_ids": wide([t.ids for t in found]),
               "response_mask": wide([t.mask for t in found]),
               "response_attention": wide([torch.ones(len(t.ids)) for t in found])}  # fmt: skip
    for name in {name for t in found for name in t.columns}:
        if name not in WHOLE or all(name in t.columns for t in found):
            parts = [t.columns.get(name, torch.full([len(t.ids)], torch.nan)) for t in found]
            columns[name] = wide(parts)
    groups = [t.prompt.tobytes() if s is None or s.group is None else repr(s.group)
              for s, t in rows]  # fmt: skip
    number = {group: i for i, group in enumerate(dict.fromkeys(groups))}
    columns["group_ids"] = torch.tensor([number[group] for group in groups])
    if "values" in columns:
        columns["bootstrap_values"] = torch.zeros(len(rows))
    if not samples:
        return columns, {}
    if None not in (cut := [s.truncated for s in samples]):
        columns["truncated"] = torch.tensor(cut)
        columns["terminated"] = ~columns["truncated"]
    paid = torch.tensor([torch.nan if s.score is None else s.score for s in samples])
    if bool(paid.isfinite().all()):
        for total, each in {"sequence_scores": "scores", "sequence_rewards": "rewards"}.items():
            columns[total] = paid.clone()
            columns[each] = at_last_action(paid, columns["response_mask"])
        for name in ("rewards", "sequence_rewards") if paid_kl else ():
            del columns[name]
    texts = {"prompts": [s.prompt for s in samples], "responses": [s.response for s in samples]}
    answers = [s.answer for s in samples]
    return columns, texts | ({} if None in answers else {"answers": answers})


def _texts(folder: Path, ids: Sequence[int]) -> dict[int, str]:
    """The texts of tokens, by a tokenizer in a folder: nothing is downloaded, no code there runs.
    Raises RlzooError if it has no tokenizer."""
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise RlzooError(f"{folder} is not a tokenizer: {first_line(error)}") from None
    return token_texts(found, ids)
