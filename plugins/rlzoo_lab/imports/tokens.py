"""Responses as tokens, read from the trainers' files and joined with their texts."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from rlzoo_lab.data.strict import damaged, json_lines
from rlzoo_lab.imports.found import Found, Sample, Tokens, Values, grouped
from rlzoo_lab.imports.pickled import array, read_saved
from rlzoo_lab.imports.tabular import parquet_rows

Responses = list[tuple[Sample | None, Tokens]]
# The trainers' names for columns of a batch: of prime-rl, SkyRL, slime and miles.
COLUMNS = {
    "old_log_probs": "log_probs action_log_probs trainer_logprobs",
    "sampler_log_probs": "rollout_log_probs rollout_logprobs inference_logprobs logprobs",
    "ref_log_probs": "ref_log_probs base_action_log_probs reference_logprobs",
    "teacher_log_probs": "teacher_log_probs", "old_entropy": "entropy", "values": "values",
    "advantages": "advantages", "returns": "returns",
}  # fmt: skip
LARGEST = 3e38  # of a float32
OURS = {theirs: ours for ours, names in COLUMNS.items() for theirs in names.split()}


def tokens(path: Path, line: int | None, ids: Any, mask: Any, columns: Mapping[str, Any]) -> Tokens:
    """A response, from the ids of prompt and response; mask and columns, by the trainer's names,
    are over the last of them. None among numbers is NaN. Raises DataError."""
    whole, chosen = _array(ids, "iu"), _array(mask, "biuf")
    if whole is None or (whole < 0).any() or (whole >= 2**31).any():
        raise damaged(path, line, "token ids, whole numbers of at least 0")
    if chosen is None or len(chosen) > len(whole) or not np.isin(chosen, (0, 1)).all():
        raise damaged(path, line, f"a mask of 0 and 1 for at most {len(whole)} tokens")
    n, on = len(chosen), chosen > 0
    start = int(on.argmax()) if on.any() else n if n == len(whole) else 0
    kept = {}
    for name in OURS.keys() & {k for k, x in columns.items() if x is not None}:
        values = columns[name]
        lost = [x is None for x in values] if isinstance(values, list) else [False] * n
        numbers = _array([x or 0.0 for x in values] if any(lost) else values, "iuf")
        if numbers is None or len(numbers) != n or not (abs(numbers[on]) < LARGEST).all():
            raise damaged(path, line, f"{n} finite numbers as {name}, one for each token")
        kept[OURS[name]] = np.where(on, np.where(lost, np.nan, numbers), 0)[start:].astype("f4")
    cut, whole = len(whole) - n + start, whole.astype(np.int64)
    return Tokens(whole[:cut], whole[cut:], on[start:].astype("f4"), kept)


def _array(values: Any, kinds: str) -> Any:
    """(N,) of these numpy kinds; None if it is not."""
    try:
        found = np.asarray(values, None if len(values) else np.int64)
    except (ValueError, OverflowError, TypeError):
        return None
    return found if found.ndim == 1 and found.dtype.kind in kinds else None


def prime_tokens(path: Path) -> Iterator[tuple[int, Tokens]]:
    """prime-rl's token export: a sequence per line, with lists over its tokens; null is NaN."""
    for number, line in json_lines(path):
        ids, mask = line.get("token_ids"), line.get("loss_mask")
        alike = isinstance(ids, list) and isinstance(mask, list) and len(ids) == len(mask)
        if type(line.get("step")) is not int or not alike:
            raise damaged(path, number, "a step and lists over tokens of one length")
        yield line["step"], tokens(path, number, ids, mask, line)


def trace_tokens(path: Path, line: int, nodes: Sequence[Mapping[str, Any]]) -> Tokens | None:
    """A branch of a trace of prime-rl: its messages' tokens one after the other, and numbers of
    those that were sampled. None where no tokens were recorded."""
    ids = [i for node in nodes for i in node.get("token_ids") or ()]
    mask = [bool(m) for node in nodes for m in node.get("mask") or ()]
    sampled, columns = [n for n in nodes if any(n.get("mask") or ())], {}
    for name in ("logprobs", "reference_logprobs", "advantages"):
        if all(node.get(name) is not None for node in sampled):
            numbers = [x for node in sampled for x in node[name]]
            if len(numbers) != sum(mask):
                raise damaged(path, line, f"{sum(mask)} {name}, one for each sampled token")
            rest = iter(numbers)
            columns[name] = [next(rest) if m else 0.0 for m in mask]
    if len(mask) != len(ids):
        raise damaged(path, line, "a mask as long as token_ids")
    return tokens(path, line, ids, mask, columns) if ids else None


def slime_tokens(path: Path, number: int, row: Mapping[str, Any]) -> Tokens | None:
    """A sample of slime or miles; None where it has no tokens."""
    at = Path(f"{path}: sample {number}")
    row = dict(row) | {k: array(row[k], at) for k in row.keys() & {*OURS, *SLIME}}
    mask = row.get("loss_mask", row.get("loss_masks"))
    n = row.get("response_length", row.get("response_lengths"))
    if row.get("tokens") is None or not len(row["tokens"]):
        return None
    mask = [1] * n if mask is None and type(n) is int and 0 <= n <= len(row["tokens"]) else mask
    if mask is None or len(mask) != n:
        raise damaged(at, None, f"a loss mask of response_length, {n!r}, tokens")
    return tokens(at, None, row["tokens"], mask, row)


SLIME = ("tokens", "loss_mask", "loss_masks")


def slime_training(path: Path) -> Iterator[tuple[int, Tokens]]:
    """Files of --save-debug-train-data of slime (format 2) and miles, which count from 0."""
    saved = read_saved(path, expected := "training data that slime or miles saved")
    columns, rows = (saved.get(k) if isinstance(saved, dict) else None
                     for k in ("rollout_data", "samples"))  # fmt: skip
    if isinstance(columns, dict):  # with context parallelism, a file has parts of responses
        count = len(columns.get("tokens") or ()) if saved.get("cp_size", 1) == 1 else 0
        lists = {k: v for k, v in columns.items() if isinstance(v, list) and len(v) == count}
        rows = [{k: v[i] for k, v in lists.items()} for i in range(count)]
    if not isinstance(rows, list) or type(saved.get("rollout_id")) is not int:
        raise damaged(path, None, expected)
    for number, row in enumerate(rows, 1):
        found = slime_tokens(path, number, row) if isinstance(row, dict) else None
        if found is None:
            raise damaged(Path(f"{path}: sample {number}"), None, "tokens")
        yield saved["rollout_id"] + 1, found


def miles_tokens(path: Path) -> Iterator[tuple[int, Tokens]]:
    """miles' dashboard_columns/rollout_N.parquet, which counts from 0."""
    for number, row in enumerate(parquet_rows(path), 1):
        step = path.stem.removeprefix("rollout_")
        if step.isdecimal() and (found := slime_tokens(path, number, row)) is not None:
            yield int(step) + 1, found


def skyrl_tokens(path: Path) -> Iterator[tuple[int, Tokens]]:
    """SkyRL's dumped_data/global_step_N_training_input.pkl: sequences are padded on the left, and
    what is about responses is aligned with their right end."""
    saved = read_saved(path, expected := "a batch that SkyRL dumped")
    state = next((x for x in getattr(saved, "arguments", ()) if isinstance(x, dict)), {})
    match = re.match(r"global_step_(\d+)_", path.name)
    try:
        batch = {k: array(x, path) for k, x in state["batch_dict"].items() if x is not None}
        real, seen = batch["attention_mask"] > 0, batch["response_mask"] > 0
        for i in range(len(real) - int((state["metadata"] or {}).get("pad_size", 0))):
            about = {k: batch[k][i][seen[i]] for k in batch.keys() & {*OURS, "loss_mask"}}
            ids, at = batch["sequences"][i][real[i]], Path(f"{path}: sample {i + 1}")
            yield int(match[1]), tokens(at, None, ids, about["loss_mask"], about)  # type: ignore[index]
    except (LookupError, TypeError, ValueError, AttributeError):
        raise damaged(path, None, expected) from None


def responses(found: Found) -> dict[int, Responses]:
    """Step -> its responses: samples with the columns of all files about them, or what has no
    texts where no sample has tokens."""
    more = grouped(found.tokens, lambda of_step: (of_step[0], of_step[1].key))
    out: dict[int, Responses] = {}
    for sample in found.samples:
        if (own := sample.tokens) is not None:
            same = more.get((sample.step, own.key))
            columns = own.columns | (same.pop(0)[1].columns if same else {})
            joined = Tokens(own.prompt, own.ids, own.mask, columns)
            out.setdefault(sample.step, []).append((sample, joined))
    for step, rows in grouped(found.tokens, lambda of_step: of_step[0]).items():
        out.setdefault(step, [(None, one) for _, one in rows])
    return dict(sorted(out.items()))


def token_metrics(rows: Responses) -> Values:
    """Metrics of one step's tokens with rlzoo's names: means over all trained tokens."""
    out, lengths = Values(), [float(t.mask.sum()) for _, t in rows]

    def note(name: str, values: Sequence[float]) -> None:
        out.update({f"{name}/mean": fmean(values), f"{name}/min": min(values),
                    f"{name}/max": max(values)})  # fmt: skip

    def chosen(name: str) -> Any:
        there = [t.columns[name][t.mask > 0] for _, t in rows if name in t.columns]
        return np.concatenate(there).astype(float) if len(there) == len(rows) else np.zeros(0)

    if sum(lengths):
        note("response_length", lengths)
        new, old = chosen("old_log_probs"), chosen("sampler_log_probs")
        if len(new) and len(old):
            out["sampler/log_prob_gap"] = fmean(abs(new - old).tolist())
        if len(advantages := chosen("advantages")):
            note("advantages", advantages.tolist())
    return out
