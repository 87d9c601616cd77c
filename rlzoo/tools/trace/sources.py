"""From a run, a recipe or typed numbers to a `Trace`: the same rollout, rewards and estimator as
in training, and one row of the batch that they give."""

import copy
import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from rlzoo import checkpoint, noise
from rlzoo.annotate import add_columns, in_chunks
from rlzoo.batch import Batch
from rlzoo.build import build_policy, build_world
from rlzoo.columns import COLUMNS
from rlzoo.component import Example
from rlzoo.estimate import add_advantages, add_rewards, loss_mask
from rlzoo.ops import masked_sum, td_lambda
from rlzoo.plan import Plan, make_plan
from rlzoo.recipe import Recipe, compose, split_values
from rlzoo.registry import Zoo
from rlzoo.rollout import collect, draw
from rlzoo.runs import RunFolder
from rlzoo.trace import Credit, Numbers, Token, Trace, TraceError, number, readable
from rlzoo.trace_explain import explain_credit, explain_shared
from rlzoo.world import World

SEARCHED = 4000  # prompts drawn at a time in search of an answer
CREDITED = ("raw_advantages", "advantages", "returns")  # columns that an estimator makes


# ---------------------------------------------------------------- sources


def of_numbers(typed: Mapping[str, str], recipes: Sequence[Recipe], zoo: Zoo, *, row: int) -> Trace:
    """From typed columns, name -> text; rows are separated by `;`. Float64."""
    rewards = _typed_rows("rewards", typed["rewards"])
    steps = max(map(len, rewards))
    mask = _padded([[1.0] * len(r) for r in rewards], steps)
    if "response_mask" in typed:
        mask = mask * _padded(_typed("response_mask", typed, rewards), steps)
    batch = Batch(mask)
    given: dict[str, Tensor] = {}
    for name in typed:
        if name == "response_mask":
            continue
        numbers = _typed(name, typed, rewards)
        if COLUMNS[name].shape == "BT":
            given[name] = _padded(numbers, steps)
        else:
            given[name] = torch.tensor([r[0] for r in numbers], dtype=torch.float64)
        if name in ("group_ids", "prompt_index"):
            given[name] = given[name].long()
    zeros = mask.new_zeros(len(mask))
    given.setdefault("scores", given["rewards"])
    given.setdefault("sequence_scores", masked_sum(given["scores"], mask))
    given.setdefault("sequence_rewards", masked_sum(given["rewards"], mask))
    given.setdefault("group_ids", zeros.long())
    given.setdefault("bootstrap_values", zeros)
    if "truncated" not in given:
        given["truncated"] = given["bootstrap_values"] != 0
    given["terminated"] = given["truncated"] == 0
    given["truncated"] = given["truncated"].bool()
    for name, value in given.items():
        batch.add(name, value)
    flags = {"bootstrap_values": "--bootstrap V", "values": "--values V,V,..."}
    plans = [make_plan(recipe, zoo) for recipe in recipes]
    for plan in plans:
        for need in plan.estimator.needs:
            if need not in batch:
                flag = flags.get(need, f"--{need} ...")
                raise TraceError(f"estimator {plan.estimator.name!r} needs {need!r}: give {flag}")
    return make_trace("typed numbers", batch, plans, row, kl_coef=None)


def _typed_rows(name: str, text: str) -> list[list[float]]:
    rows = []
    for part in text.split(";"):
        row = []
        for word in split_values(part):
            try:
                row.append(float(word))
            except ValueError:
                raise TraceError(f"--{name}: {word!r} is no number (got {text!r})") from None
        rows.append(row)
    return rows


def _typed(name: str, typed: Mapping[str, str], like: list[list[float]]) -> list[list[float]]:
    """The rows of a typed column, as long as those of the rewards; a number each for a (B,) one."""
    text = typed[name]
    if COLUMNS[name].shape == "B":
        text = text.replace(",", ";")
    rows = _typed_rows(name, text)
    wanted = [1 if COLUMNS[name].shape == "B" else len(r) for r in like]
    if [len(r) for r in rows] != wanted:
        got, want = (" ; ".join(map(str, n)) for n in ([len(r) for r in rows], wanted))
        raise TraceError(f"--{name}: --rewards asks for as many numbers as {want}. Got {got}")
    return rows


def _padded(rows: list[list[float]], steps: int) -> Tensor:
    return torch.tensor([r + [0.0] * (steps - len(r)) for r in rows], dtype=torch.float64)


def of_recipe(
    recipes: Sequence[Recipe], zoo: Zoo, *, prompt: str | None, answer: str | None, row: int
) -> Trace:
    """A fresh response of a recipe's base model."""
    plans = [make_plan(recipe, zoo) for recipe in recipes]
    world = build_world(_together(plans))
    coef = recipes[0].config.kl.coef if plans[0].kl else 0.0
    what = f"{recipes[0].name}: {_model(recipes[0])} on {plans[0].task_name}, untrained"
    traced = _fresh(world, plans, what, prompt, answer, row, step=0, kl_coef=coef)
    if world.critic is not None:
        traced.notes.append("The critic is untrained: its values mean nothing yet.")
    return traced


def of_run(
    folder: RunFolder,
    recipes: Sequence[Recipe],
    zoo: Zoo,
    *,
    prompt: str | None,
    answer: str | None,
    row: int,
    step: int | None,
    fresh: bool,
) -> Trace:
    """A response of a run: from its last saved batch, else a fresh one of its last checkpoint."""
    plans = [make_plan(recipe, zoo) for recipe in recipes]
    batches = sorted((folder.path / "batches").glob("step-*.safetensors"))
    if batches and prompt is None and not fresh:
        return _saved(folder, _choose(batches, step), plans, zoo, row)
    world = build_world(_together(plans))
    state, notes = _load(folder, step, world)
    coef = state.get("kl_coef", recipes[0].config.kl.coef if plans[0].kl else 0.0)
    at = state.get("step", 0)
    what = f"{folder.path}, checkpoint of step {at}, a fresh batch"
    if prompt is not None and answer is None:
        told = [r["answer"] for r in folder.read("samples.jsonl") if r["prompt"] == prompt]
        seen = Example(prompt, told[0]) if told else None
    else:
        seen = None
    traced = _fresh(world, plans, what, prompt, answer, row, step=at, kl_coef=coef, seen=seen)
    traced.notes += notes
    return traced


def _choose(found: list[Path], step: int | None) -> Path:
    """The newest of some `step-N...`, or that of `step`."""
    steps = {int(p.name.split(".")[0].removeprefix("step-")): p for p in found}
    if step is None:
        return steps[max(steps)]
    if step not in steps:
        what = f"{found[0].parent.name} of steps {', '.join(map(str, sorted(steps)))}"
        raise TraceError(f"--step: there is nothing of step {step}; {found[0].parent} has {what}")
    return steps[step]


def _load(folder: RunFolder, step: int | None, world: World) -> tuple[dict[str, Any], list[str]]:
    """Load the weights of a checkpoint into the world: its state, and what is to be noted."""
    found = sorted(folder.checkpoints.glob("step-*"))
    notes = []
    if step is not None and not found:
        raise TraceError(f"--step: {folder.path} has no checkpoint")
    if step is not None:
        found = [_choose(found, step)]
    for path in reversed(found):
        fault = checkpoint.damage(path)
        if fault:
            notes.append(f"Checkpoint {path.name} is damaged ({fault}).")
            continue
        networks: dict[str, Any] = {"actor": world.policy.model}
        if world.critic is not None:
            networks["critic"] = world.critic
        for name, network in networks.items():
            file = path / f"{name}.safetensors"
            if file.exists():
                checkpoint._load_network(network, load_file(file))
            else:
                notes.append(f"The run has no {name}: that of this trace is untrained.")
        return json.loads((path / "state.json").read_text()), notes
    if found:
        raise TraceError(f"{folder.checkpoints}: {' '.join(notes)}")
    return {}, [*notes, f"{folder.path} has no checkpoint yet: this is the base model."]


@torch.no_grad()
def _fresh(
    world: World,
    plans: Sequence[Plan],
    source: str,
    prompt: str | None,
    answer: str | None,
    row: int,
    *,
    step: int,
    kl_coef: float,
    seen: Example | None = None,
) -> Trace:
    """A batch as in training, of held-out prompts or with `prompt` as its first, and one row.

    seen: the prompt with its answer, if the run's samples hold it.
    """
    config = world.plan.recipe.config
    drawn = draw(world, "test", config.rollout.prompts, "trace", step)
    scored, notes = True, []
    if prompt is not None:
        if row >= config.rollout.samples:
            raise TraceError(
                f"--row {row}: this prompt has {config.rollout.samples} responses, from 0 on "
                "(rollout.samples)"
            )
        world.encode(prompt)  # raises where the tokenizer does not know a character
        known = (seen or _find_answer(world, prompt)) if answer is None else None
        scored = known is not None or answer is not None
        if known is None:
            told = _as_answer(answer, drawn[0].answer) if answer is not None else drawn[0].answer
            known = Example(prompt, told)
        if not scored:
            notes = [
                "Unscored: the task draws no such prompt, so nobody knows what is right; "
                "--answer TEXT tells."
            ]
        drawn = [known, *drawn[1:]]  # the rest of the batch is what advantages are whitened over
    batch = collect(
        world, drawn, config.rollout.samples, stream="trace", step=step,
        sampler=world.plan.base_sampler,
    )  # fmt: skip
    add_columns(world, batch, stream="trace", step=step)
    add_rewards(world.plan, batch, kl_coef)
    _add_current(world, batch)
    traced = make_trace(source, batch, plans, row, kl_coef=kl_coef, world=world, scored=scored)
    traced.notes += notes
    return traced


def _find_answer(world: World, prompt: str) -> Example | None:
    """The example with this prompt among those that the task draws.

    The search ends when a draw brings nothing new, and at once where hardly a prompt comes twice:
    there are too many of them to meet this one.
    """
    for split_name in ("train", "test"):
        generator = noise.generator(world.seed, f"prompts/search/{split_name}")
        met: set[str] = set()
        for _ in range(20):
            drawn = {
                item[0]: item for item in world.plan.task.draw(split_name, SEARCHED, generator)
            }
            if prompt in drawn:
                return Example(*drawn[prompt])
            new = len(drawn.keys() - met)
            met |= drawn.keys()
            if new == 0 or new > 0.9 * SEARCHED:
                break
    return None


def _as_answer(text: str, like: Any) -> Any:
    """`text` as the type that the task's own answers have."""
    if isinstance(like, str) or like is None:
        return text
    try:
        return type(like)(json.loads(text))
    except (TypeError, ValueError):
        kind = type(like).__name__
        raise TraceError(
            f"--answer: this task's answers are of type {kind}, like {like!r}"
        ) from None


def _saved(folder: RunFolder, path: Path, plans: Sequence[Plan], zoo: Zoo, row: int) -> Trace:
    """A row of a saved batch; ratio and clipping are the final policy's."""
    step = int(path.stem.removeprefix("step-"))
    config = plans[0].recipe.config
    world = World(plans[0], build_policy(config), seed=config.seed)
    state, notes = _load(folder, None, world)
    try:
        columns: dict[str, Any] = dict(load_file(path, device=str(world.policy.device)))
        columns |= json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        batch = Batch(columns.pop("response_mask"))
    except (OSError, ValueError, KeyError) as error:
        raise TraceError(f"{path}: cannot be read: {str(error).splitlines()[0]}") from None
    made = {n: columns.pop(n) for n in CREDITED if n in columns}
    for name, value in columns.items():
        if name in COLUMNS or name in zoo.columns:
            batch.add(name, value, None if name in COLUMNS else zoo.columns[name].shape)
    for plan in plans:
        for need in plan.estimator.needs:
            if need not in batch:
                raise TraceError(
                    f"estimator {plan.estimator.name!r} needs {need!r}, which this run's batches "
                    "do not hold; --fresh draws a batch that has it"
                )
    _add_current(world, batch)
    key = "actor/kl_coef"  # an adaptive one has moved on since
    lines = [r for r in folder.read("metrics.jsonl") if r.get("step") == step and key in r]
    coef = lines[0][key] if lines else config.kl.coef
    own = make_plan(compose([f"recipe={folder.path / 'recipe.yaml'}"], zoo), zoo)
    at = state.get("step", 0)
    source = f"{folder.path}, saved batch of step {step}"
    traced = make_trace(
        source, batch, plans, row, kl_coef=coef, world=world, made={_credit_key(own): made}
    )
    traced.notes += notes
    traced.notes.append(
        f"ratio: of the policy after step {at} against the one that drew this response at the "
        f"start of step {step}."
    )
    return traced


def _model(recipe: Recipe) -> str:
    return str(recipe.config.model.name or recipe.config.model.path)


def _together(plans: Sequence[Plan]) -> Plan:
    """A plan whose batch serves all of them; they differ in the estimator only."""
    whole = next((p for p in plans if p.critic), plans[0])  # a critic brings its loss along
    columns = {bound.name: bound for plan in plans for bound in plan.columns}
    needs = frozenset().union(*(plan.needs for plan in plans))
    return dataclasses.replace(whole, needs=needs, columns=tuple(columns.values()))


@torch.no_grad()
def _add_current(world: World, batch: Batch) -> None:
    """`log_probs` and `entropy` of the policy as it is now."""

    def score(columns: Mapping[str, Any]) -> Tensor:
        out = world.policy.score(columns, want=("entropy",), entropy_grad=False)
        return torch.stack([out["log_probs"], out["entropy"]], -1)

    both = in_chunks(world, batch, score)
    batch.add("log_probs", both[..., 0])
    batch.add("entropy", both[..., 1])


# ---------------------------------------------------------------- a row of a batch


def _credit_key(plan: Plan) -> str:
    config = plan.recipe.config
    options = sorted(plan.estimator.options.items())
    return repr((plan.estimator.name, options, config.whiten, config.whiten_ddof))


@torch.no_grad()
def make_trace(
    source: str,
    batch: Batch,
    plans: Sequence[Plan],
    row: int,
    *,
    kl_coef: float | None,
    world: World | None = None,
    scored: bool = True,
    made: Mapping[str, Mapping[str, Tensor]] | None = None,
) -> Trace:
    """Row `row` of a batch that has everything but advantages, which each plan's estimator adds.

    made: advantages and returns that are there already, by `_credit_key`.
    """
    if not 0 <= row < batch.rows:
        raise TraceError(f"--row {row}: the batch has responses 0 to {batch.rows - 1}")
    plan = plans[0]
    kl = _kl(plan, batch)
    seen = batch["response_attention" if "response_attention" in batch else "response_mask"]
    length = int(seen[row].nonzero().max()) + 1 if bool(seen[row].any()) else 0
    action = batch["response_mask"][row, :length].bool().tolist()

    def cut(column: Tensor) -> Numbers:
        values = column[row, :length].tolist()
        return [v if a else None for v, a in zip(values, action, strict=True)]

    columns: dict[str, Tensor] = {}
    for name in ("log_probs", "old_log_probs", "ref_log_probs"):
        if name in batch:
            columns[name] = batch[name]
    if kl is not None:
        columns["kl"] = kl
    if scored and (world or not torch.equal(batch["scores"], batch["rewards"])):
        columns["scores"] = batch["scores"]
    if scored:
        columns["rewards"] = batch["rewards"]
    if "values" in batch:
        columns["values"] = batch["values"]
    if "log_probs" in batch and "old_log_probs" in batch:
        columns["ratio"] = (batch["log_probs"] - batch["old_log_probs"]).exp()
    texts = _texts(world, batch, row, length)
    traced = Trace(
        source=source,
        row=row,
        rows=batch.rows,
        prompt=batch["prompts"][row] if "prompts" in batch else None,
        answer=batch["answers"][row] if "answers" in batch and scored else None,
        score=batch["sequence_scores"][row].item() if scored else None,
        tokens=[Token(t, text, action[t]) for t, text in enumerate(texts)],
        columns={name: cut(column) for name, column in columns.items()},
        bootstrap=batch["bootstrap_values"][row].item() if "values" in batch else None,
        ending=_ending(plan, batch, row),
        credits=[],
    )  # fmt: skip
    if not scored:
        return traced
    traced.derivations = explain_shared(plan, batch, row, kl=kl, kl_coef=kl_coef)
    labels = _labels(plans)
    for plan, label in zip(plans, labels, strict=True):
        whole = copy.deepcopy(batch)
        stored = (made or {}).get(_credit_key(plan))
        if stored:
            whole.update(stored)
        else:
            add_advantages(plan, whole)
        traced.credits.append(_credit(plan, whole, row, label, cut))
    return traced


def _credit(plan: Plan, batch: Batch, row: int, label: str, cut: Any) -> Credit:
    columns = {n: batch[n] for n in CREDITED if n in batch}
    if "values" in plan.estimator.needs:
        columns = {"delta": delta(plan, batch), **columns}
    marks = _clipped(plan, batch)
    clipped = None
    if marks is not None:
        per_mark = {word: cut(mark) for word, mark in marks.items()}
        clipped = [
            _mark({w: m[t] for w, m in per_mark.items()})
            for t in range(len(cut(columns["advantages"])))
        ]
    return Credit(
        label=label,
        name=plan.estimator.name,
        options=dict(plan.estimator.options),
        summary=plan.estimator.component.summary,
        columns={name: cut(column) for name, column in columns.items()},
        clipped=clipped,
        whitened=_whitened(plan, batch, row),
        derivations=explain_credit(plan, batch, row, columns),
    )


def delta(plan: Plan, batch: Mapping[str, Any]) -> Tensor:
    """delta_t = r_t + gamma V_next - V_t (B, T), gamma the estimator's or 1."""
    gamma = float(plan.estimator.options.get("gamma", 1.0))
    return td_lambda(
        batch["rewards"], batch["values"], batch["bootstrap_values"], batch["response_mask"],
        gamma=gamma, lam=0.0,
    )  # fmt: skip


def _kl(plan: Plan, batch: Batch) -> Tensor | None:
    """The recipe's penalty at rollout (B, T); without one the log-ratio to a reference."""
    if "ref_log_probs" not in batch or "old_log_probs" not in batch:
        return None
    if plan.kl and all(n in batch for n in plan.kl.needs if n != "log_probs"):
        return plan.kl({**batch, "log_probs": batch["old_log_probs"]})
    return batch["old_log_probs"] - batch["ref_log_probs"]


def _clipped(plan: Plan, batch: Batch) -> dict[str, Tensor] | None:
    """What the policy loss says of clipping: word -> (B, T), from its metrics `*clipfrac*`."""
    if "log_probs" not in batch or any(n not in batch for n in plan.policy_loss.needs):
        return None
    mask = loss_mask(plan, batch)
    _, metrics = plan.policy_loss({**batch, "response_mask": mask})
    found = {
        n.partition("clipfrac")[2].strip("_"): m for n, m in metrics.items() if "clipfrac" in n
    }
    return found or None


def _mark(values: Mapping[str, float | None]) -> str:
    """`no`, `yes`, or the kind of clipping where the loss tells kinds apart."""
    if all(v is None for v in values.values()):
        return ""
    kinds = [word for word, v in values.items() if v and word]
    return ", ".join(kinds) or ("yes" if any(values.values()) else "no")


def _whitened(plan: Plan, batch: Batch, row: int) -> str:
    config = plan.recipe.config
    if config.whiten == "none":
        return ""
    rows = batch["response_mask"] > 0
    if config.whiten == "group":
        rows = rows[batch["group_ids"] == batch["group_ids"][row]]
    n = int(rows.sum())
    return f"whitened over the {n:,} action token{'s' * (n != 1)} of the {config.whiten}"


def _labels(plans: Sequence[Plan]) -> list[str]:
    """Short names that tell the plans' estimators apart: options only where they differ."""
    labels = []
    for plan in plans:
        same = [p for p in plans if p.estimator.name == plan.estimator.name]
        told = [
            f"{name}={_short(value)}"
            for name, value in plan.estimator.options.items()
            if any(p.estimator.options[name] != value for p in same)
        ]
        labels.append(" ".join([plan.estimator.name, *told]))
    return labels


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _ending(plan: Plan, batch: Batch, row: int) -> str:
    if "bootstrap_values" not in batch:
        return ""
    after = number(batch["bootstrap_values"][row].item())
    if bool(batch["truncated"][row]):
        mode = plan.recipe.config.rollout.truncation
        how = f"was cut off at the length limit (rollout.truncation={mode})"
        how = how if "response_ids" in batch else "goes on"
    else:
        how = "ended"
    return f"after the last token it {how}, so what follows is worth {after}"


def _texts(world: World | None, batch: Batch, row: int, length: int) -> list[str]:
    if world is None:
        return [""] * length
    tokenizer = world.tokenizer
    ids = batch["response_ids"][row, :length].tolist()
    pieces = tokenizer.convert_ids_to_tokens(ids)
    special = set(tokenizer.all_special_ids)
    return [
        piece if i in special else readable(tokenizer.decode([i], skip_special_tokens=False), piece)
        for i, piece in zip(ids, pieces, strict=True)
    ]
