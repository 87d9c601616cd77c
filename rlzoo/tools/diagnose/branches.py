"""`rlzoo diagnose RUN --branches K`: estimators against branch rollouts, in worlds too large to
enumerate.

From chosen states of a fresh batch, and from the states after their tokens, K responses each are
drawn to their end. Their mean scores stand for V(s) and V(s'), and A^ = r + V^(s') - V^(s) for the
truth. Two halves of the branches, drawn apart, give two references A1 and A2 whose errors are
independent: E[(a - A1)(a - A2)] is the squared error against the truth itself.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlzoo import checkpoint, mdp, noise
from rlzoo.annotate import add_columns
from rlzoo.batch import Batch
from rlzoo.build import build_world
from rlzoo.component import RlzooError
from rlzoo.diagnose import estimators_of, labels, name_of, number
from rlzoo.estimate import add_rewards, loss_mask
from rlzoo.ops import group_mean
from rlzoo.plan import CRITIC_COLUMNS, Plan, make_plan
from rlzoo.recipe import Recipe, RecipeError, compose
from rlzoo.registry import Zoo, load_zoo
from rlzoo.rollout import collect, draw, left_pad, respond
from rlzoo.runs import RunError, RunFolder, open_folder
from rlzoo.stats import mean_interval, student_quantile, wilson
from rlzoo.trace import readable
from rlzoo.trace_batch import _together
from rlzoo.world import World

STATES = 64  # unless told, or all of a batch that has fewer
SHOWN = 12  # states in the table; all are in the document
OF_PROMPT = ("prompts", "answers", "prompt_ids", "prompt_mask", "prompt_index", "group_ids")
STREAM = "branches"


def branch_document(arguments: argparse.Namespace) -> dict[str, Any]:
    """The document of a command line."""
    run, *words = arguments.words
    if "=" in run:
        raise RlzooError(
            "--branches: give a RUN folder, not a recipe: a run's policy is what rolls"
        )
    if arguments.branches is None:
        raise RlzooError("--states: give --branches K, the rollouts from each state, too")
    for word in words:
        if "=" not in word:
            raise RlzooError(f"diagnose: {word!r} is no key=value")
    return diagnose_branches(run, words, branches=arguments.branches, states=arguments.states)


@torch.no_grad()
def diagnose_branches(
    path: str, words: list[str], *, branches: int, states: int | None = None
) -> dict[str, Any]:
    """What `--json` prints.

    words: estimator=... and options, else the run's own and all others; and other keys.
    branches: K, rollouts from each state, even.   states: N, how many states.
    """
    if branches < 2 or branches % 2:
        raise RlzooError(f"--branches must be even (two halves) and at least 2. Got {branches}")
    if states is not None and states < 2:
        raise RlzooError(f"--states must be at least 2. Got {states}")
    folder = open_folder(path)
    zoo = load_zoo()
    own, plans, undone = _plans(folder, words, zoo)
    world = build_world(_together([own, *(plan for _, plan in plans)]))
    source, step = _load(folder, world)
    config = own.recipe.config
    examples = draw(world, "test", config.rollout.prompts, STREAM, step)
    batch = collect(
        world, examples, config.rollout.samples, stream=f"{STREAM}/batch", step=step,
        sampler=world.plan.base_sampler,
    )  # fmt: skip
    tokens = {"batch": world.tokens}
    add_columns(world, batch, stream=f"{STREAM}/batch", step=step)
    world.kept = None
    tokens["columns"] = world.tokens - tokens["batch"]
    add_rewards(world.plan, batch, 0.0)
    if own.conversation or bool((batch["response_attention"] != batch["response_mask"]).any()):
        raise RlzooError("--branches: these responses hold observations, and no branch can")

    mask = loss_mask(own, batch).cpu()
    there = int(mask.sum())
    if there < 2 or (states or 0) > there:
        raise RlzooError(f"--states: this batch has {there} tokens. Got {states or STATES}")
    count = states or min(STATES, there)
    row, at = choose(mask, count, noise.generator(config.seed, f"{STREAM}/states", step))
    before = world.tokens
    found = _reference(world, batch, row, at, branches, step)
    tokens["branches"] = world.tokens - before
    tokens["all"] = world.tokens

    clusters = batch["group_ids"].cpu()[row].numpy()
    values = batch["values"].cpu()[row, at].double().numpy() if "values" in batch else None
    rows, failed = [], []
    for recipe, plan in plans:
        name = plan.estimator.name
        try:
            raw = plan.estimator(batch)["advantages"].cpu()[row, at].double().numpy()
        except RlzooError as error:
            failed.append({"estimator": name, "reason": str(error)})
            continue
        rows.append(
            {
                "estimator": name,
                "options": recipe.options("estimator"),
                "shown": labels(plan.estimator.component, recipe.options("estimator"), words),
                **against(raw, found.first, found.second, clusters),
            }
        )
    return {
        "run": str(folder.path),
        "source": source,
        "step": step,
        "task": own.task_name,
        "rows": batch.rows,
        "mean_score": batch["sequence_scores"].double().mean().item(),
        "branches": branches,
        "states": _states(world, batch, row, at, found, values),
        "prompts": len(set(clusters.tolist())),
        "binary": found.binary,
        "tokens": tokens,
        "kl_in_target": False,
        "kl_in_training": _kl_in_reward(folder, zoo),
        "reference": _quality(found, clusters),
        "critic": None if values is None else _critic(values, found, clusters),
        "estimators": rows,
        "not_diagnosable": undone,
        "failed": failed,
    }


# ---------------------------------------------------------------- the run


def _plans(
    folder: RunFolder, words: list[str], zoo: Zoo
) -> tuple[Plan, list[tuple[Recipe, Plan]], list[dict[str, str]]]:
    """The run's own plan, that of each estimator, and those that cannot be asked."""
    base = [f"recipe={folder.path / 'recipe.yaml'}", "kl.place=none"]
    other = [w for w in words if not w.startswith("estimator")]
    own = make_plan(compose([*base, *other], zoo), zoo)
    named = len(other) < len(words)
    if named:
        recipes = estimators_of([*base, *words], zoo)
    else:
        rest = ",".join(name for name in zoo.estimators if name != own.estimator.name)
        recipes = estimators_of([*base, *other], zoo)
        recipes += estimators_of([*base, *other, f"estimator={rest}"], zoo)
    plans, undone = [], {}
    for recipe in recipes:
        name = recipe.config.estimator.name
        try:
            plan = make_plan(recipe, zoo)
        except RecipeError as error:
            undone[name] = str(error).split(": ", 1)[-1]
            continue
        wanted = set(plan.estimator.needs) & set(CRITIC_COLUMNS)
        if wanted and not own.critic:
            undone[name] = f"needs {min(wanted)}, and this run has no critic"
        elif not named and (more := {c.name for c in plan.columns} - {c.name for c in own.columns}):
            undone[name] = f"needs {', '.join(sorted(more))}, which the run does not make; name it"
        else:
            plans.append((recipe, plan))
    if not plans:
        name, why = next(iter(undone.items()))
        raise RunError(f"{folder.path}: no estimator can be asked: {name}: {why}")
    return own, plans, [{"estimator": n, "reason": why} for n, why in undone.items()]


def _load(folder: RunFolder, world: World) -> tuple[str, int]:
    """Put the run's newest whole checkpoint, or its final model, into the world: which, and its
    step."""
    networks: dict[str, Any] = {"actor": world.policy.model}
    if world.critic is not None:
        networks["critic"] = world.critic
    try:
        state, _ = checkpoint.load_checkpoint(folder.checkpoints, networks, {})
    except OSError as error:
        raise RunError(f"{folder.checkpoints}: {str(error).splitlines()[0]}") from None
    if state is not None:
        return f"checkpoint of step {state['step']}", state["step"]
    model = folder.path / "model"
    if world.critic is not None or not (model / "config.json").is_file():
        raise RunError(f"{folder.path} has no checkpoint yet; wait for one, or resume the run")
    from rlzoo.pretrained import load_causal_lm

    world.policy.model.load_state_dict(load_causal_lm(Path(model)).state_dict())
    return "final model", 0


def _kl_in_reward(folder: RunFolder, zoo: Zoo) -> bool:
    kl = compose([f"recipe={folder.path / 'recipe.yaml'}"], zoo).config.kl
    return bool(kl.place == "reward" and kl.coef > 0)


# ---------------------------------------------------------------- states and branches


def choose(mask: Tensor, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """n tokens of a mask (B, T), each as likely as any other: rows and positions, (n,) each.

    Every so many-th token of all, in the order of their positions, the rows in random order
    within each: positions come up as often as the policy visits them.
    """
    step, row = mask.bool().T.nonzero().unbind(1)
    order = (step + torch.rand(len(step), generator=generator, dtype=torch.float64)).argsort()
    start = torch.rand((), generator=generator, dtype=torch.float64)
    place = ((torch.arange(n) + start) * len(row) / n).long().clamp(max=len(row) - 1)
    return row[order[place]], step[order[place]]


@dataclass
class Reference:
    """Of N states: the scores still to come from s, from s with its token, and from s', by K
    branches, (N, K) each.

    `ended`: the token was the last, so that nothing is to come and no branch was drawn.
    """

    here: np.ndarray
    taken: np.ndarray
    after: np.ndarray
    ended: np.ndarray
    binary: bool

    @property
    def reward(self) -> np.ndarray:
        """(N,) what the token itself is paid, on average where chance pays."""
        paid: np.ndarray = (self.taken - self.after).mean(1)
        return paid

    def advantage(self, part: slice) -> np.ndarray:
        """(N,) r + V^(s') - V^(s), by some of the branches."""
        gain: np.ndarray = self.taken[:, part].mean(1) - self.here[:, part].mean(1)
        return gain

    @property
    def first(self) -> np.ndarray:
        return self.advantage(slice(0, self.here.shape[1] // 2))

    @property
    def second(self) -> np.ndarray:
        return self.advantage(slice(self.here.shape[1] // 2, None))

    @property
    def whole(self) -> np.ndarray:
        return self.advantage(slice(None))

    def interval(self, scores: np.ndarray) -> tuple[float, float]:
        """95 % of a state's V: Wilson's for scores of 0 and 1, else the normal one."""
        if self.binary:
            return wilson(float(scores.sum()), len(scores))
        return mean_interval(scores.tolist())


def _reference(
    world: World, batch: Batch, row: Tensor, at: Tensor, branches: int, step: int
) -> Reference:
    lengths = batch["response_mask"].long().sum(1).cpu()[row]
    ended = at + 1 >= lengths
    on = ~ended
    n = len(row)
    both, since = torch.cat([row, row[on]]), torch.cat([at, at[on]])
    begin = torch.cat([at, at[on] + 1])
    drawn, later = branch(world, batch, both, begin, since, branches, step=step)
    taken, after = drawn.new_zeros(n, branches), drawn.new_zeros(n, branches)
    taken[on], after[on] = drawn[n:], later[n:]
    if bool(ended.any()):
        first = len(both) * branches  # numbers of the noise beyond those of the branches
        taken[ended] = _last_rewards(world, batch, row[ended], at[ended], branches, first, step)
    outcomes = torch.tensor([0.0, 1.0], dtype=drawn.dtype)
    return Reference(
        drawn[:n].numpy(),
        taken.numpy(),
        after.numpy(),
        ended.numpy(),
        bool(torch.isin(torch.cat([drawn, taken]), outcomes).all()),
    )


def _last_rewards(
    world: World, batch: Batch, row: Tensor, at: Tensor, rollouts: int, first: int, step: int
) -> Tensor:
    """(N, K) what the last tokens of responses are paid: drawn anew where chance pays."""
    if "noise" not in world.plan.needs:
        return batch["scores"].cpu().double()[row, at][:, None].expand(-1, rollouts)
    numbers = first + torch.arange(len(row) * rollouts)
    columns = batch.select(row.repeat_interleave(rollouts).to(world.policy.device))
    since = at.repeat_interleave(rollouts)
    columns["noise"] = _fresh_noise(world, columns, numbers, since, batch.steps, step)
    scores = mdp.score(world.plan, columns)["scores"].cpu().double()
    return scores.gather(1, since[:, None]).view(-1, rollouts)


def _fresh_noise(
    world: World, columns: Mapping[str, Any], numbers: Tensor, since: Tensor, width: int, step: int
) -> Tensor:
    """(B, width): what chance has decided before `since` stays decided, the rest is new."""
    past = columns["noise"]
    fresh = noise.uniforms(world.seed, f"{STREAM}/noise", step, numbers, width).to(past)
    past = torch.nn.functional.pad(past, (0, max(0, width - past.shape[1])))[:, :width]
    later = torch.arange(width, device=past.device) >= since.to(past.device)[:, None]
    return torch.where(later, fresh, past)


def branch(
    world: World, batch: Batch, row: Tensor, begin: Tensor, since: Tensor, rollouts: int, *,
    step: int,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """What K fresh rollouts after the first `begin` (N,) tokens of `row` are paid from position
    `since` <= `begin` on, and from `begin` on; (N, K) float64 each.

    The length limit is the whole response's. As many at a time as the batch has rows; those with
    prefixes of like length together.
    """
    of = torch.arange(len(row)).repeat_interleave(rollouts)
    numbers = torch.arange(len(of))  # of the noise: a branch of its own each
    out = torch.zeros(2, len(of), dtype=torch.float64)
    for part in begin[of].argsort(stable=True).split(max(batch.rows, rollouts)):
        i = of[part]
        out[:, part] = _branch(world, batch, row[i], begin[i], since[i], numbers[part], step)
    return out[0].view(-1, rollouts), out[1].view(-1, rollouts)


def _branch(
    world: World, batch: Batch, row: Tensor, begin: Tensor, since: Tensor, numbers: Tensor,
    step: int,
) -> Tensor:  # fmt: skip
    plan, policy = world.plan, world.policy
    limit = plan.recipe.config.rollout.max_new_tokens
    rows, starts = row.tolist(), begin.tolist()
    there = {i: batch["response_ids"][i].tolist() for i in set(rows)}
    asked = {i: batch["prompt_ids"][i][batch["prompt_mask"][i].bool()].tolist() for i in set(rows)}
    old = [there[i][:t] for i, t in zip(rows, starts, strict=True)]
    prefixes = [asked[i] + tokens for i, tokens in zip(rows, old, strict=True)]
    ids, mask = left_pad(prefixes, policy.pad_id, policy.device)
    prompts = {"prompt_ids": ids, "prompt_mask": mask}
    room = limit - begin
    drawn = respond(
        world, plan.base_sampler, prompts, numbers, stream=STREAM, step=step,
        max_new_tokens=int(room.max()),
    )  # fmt: skip
    length = drawn["response_mask"].long().sum(1).cpu()
    cut = (length > room).to(policy.device)
    kept = torch.minimum(length, room).tolist()
    whole = [
        tokens + new[:n]
        for tokens, new, n in zip(old, drawn["response_ids"].tolist(), kept, strict=True)
    ]
    width = max(map(len, whole))
    end = torch.tensor([len(tokens) for tokens in whole], device=policy.device)
    places = torch.arange(width, device=policy.device)
    live = (places < end[:, None]).float()
    picked = batch.select(row.to(policy.device))
    columns = {
        **{name: picked[name] for name in OF_PROMPT},
        "response_ids": torch.tensor(
            [tokens + [policy.pad_id] * (width - len(tokens)) for tokens in whole],
            device=policy.device,
        ),
        "response_mask": live,
        "response_attention": live,
        "terminated": drawn["terminated"].bool() & ~cut,
        "truncated": drawn["truncated"].bool() | cut,
    }
    columns["responses"] = mdp.decode(world.tokenizer, columns, policy.eos_ids)
    if "response_tokens" in plan.needs:
        columns["response_tokens"] = mdp.decode_tokens(world.tokenizer, columns, policy.eos_ids)
    if "noise" in plan.needs:
        columns["noise"] = live * _fresh_noise(world, picked, numbers, since, width, step)
    scores = mdp.score(plan, columns)["scores"].double().cpu()
    parts = [scores * (torch.arange(width) >= first[:, None]) for first in (since, begin)]
    return torch.stack(parts).sum(2)


# ---------------------------------------------------------------- what is said of them


def jackknife(
    statistic: Callable[..., float], columns: Sequence[np.ndarray], clusters: np.ndarray
) -> tuple[float | None, float | None]:
    """A statistic of columns (N,) and its standard error, states of a prompt left out together.

    None where it is not defined, or where there are fewer than two prompts.
    """
    value = statistic(*columns)
    if not math.isfinite(value):
        return None, None
    ids = np.unique(clusters)
    if len(ids) < 2:
        return value, None
    left = [statistic(*(c[clusters != i] for c in columns)) for i in ids]
    spread = np.asarray(left) - np.mean(left)
    se = math.sqrt((len(ids) - 1) / len(ids) * float((spread**2).sum()))
    return value, se if math.isfinite(se) else None


def squared_error(a: np.ndarray, first: np.ndarray, second: np.ndarray) -> float:
    """The mean of (a - A1)(a - A2): unbiased for that of (a - A)^2, where A1 and A2 are A plus
    errors independent of each other and of a."""
    return float(((a - first) * (a - second)).mean())


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    x, y = a - a.mean(), b - b.mean()
    size = math.sqrt(float((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / size if size > 1e-12 else math.nan


def _sign(a: np.ndarray, truth: np.ndarray) -> float:
    weight = np.abs(truth)
    agree = np.where(a == 0, 0.5, a * truth > 0)
    return float((weight * agree).sum() / weight.sum()) if weight.sum() > 0 else math.nan


def against(
    a: np.ndarray, first: np.ndarray, second: np.ndarray, clusters: np.ndarray
) -> dict[str, Any]:
    """Advantages (N,) against two references of independent errors."""
    whole = (first + second) / 2
    mean = lambda x, y: float((x - y).mean())  # noqa: E731
    found: dict[str, Any] = {}
    for name, statistic, columns in (
        ("bias", mean, (a, whole)),
        ("correlation", _correlation, (a, whole)),
        ("agreement", _sign, (a, whole)),
        ("squared_error", squared_error, (a, first, second)),
    ):
        found[name], found[f"{name}_se"] = jackknife(statistic, columns, clusters)
    found["bias_interval"] = None
    if found["bias_se"] is not None:
        half = student_quantile(0.975, len(np.unique(clusters)) - 1) * found["bias_se"]
        found["bias_interval"] = [found["bias"] - half, found["bias"] + half]
    return found


def _quality(found: Reference, clusters: np.ndarray) -> dict[str, Any]:
    """How good the reference is: its own noise, the truth's size, how far its halves agree."""
    first, second = found.first, found.second
    size, se = jackknife(lambda x, y: float((x * y).mean()), (first, second), clusters)
    r = _correlation(first, second)
    known = math.isfinite(r)
    return {
        "truth": size,
        "truth_se": se,
        "noise": float(((first - second) ** 2).mean() / 4),
        "halves_correlation": r if known else None,
        "best_correlation": math.sqrt(max(0.0, 2 * r / (1 + r))) if known and r > -1 else None,
    }


def _critic(values: np.ndarray, found: Reference, clusters: np.ndarray) -> dict[str, Any]:
    """The critic's V against V^."""
    half = found.here.shape[1] // 2
    first, second = found.here[:, :half].mean(1), found.here[:, half:].mean(1)
    told = against(values, first, second, clusters)
    ranges = [found.interval(scores) for scores in found.here]
    told["inside"] = sum(
        bool(low <= v <= high) for v, (low, high) in zip(values, ranges, strict=True)
    )
    return told


def _states(
    world: World, batch: Batch, row: Tensor, at: Tensor, found: Reference, values: Any
) -> list[dict[str, Any]]:
    whole = found.whole
    groups = group_mean(batch["sequence_scores"], batch["group_ids"]).cpu()
    texts = []
    for i, t in zip(row.tolist(), at.tolist(), strict=True):
        ids = batch["response_ids"][i, : t + 1].tolist()
        piece = world.tokenizer.convert_ids_to_tokens(ids[t])
        token = readable(world.tokenizer.decode(ids[t:]), piece)
        texts.append((world.tokenizer.decode(ids[:t]), token))
    return [
        {
            "row": int(row[i]),
            "position": int(at[i]),
            "prompt": batch["prompts"][int(row[i])],
            "score": float(batch["sequence_scores"][row[i]]),
            "group_score": float(groups[row[i]]),
            "before": texts[i][0],
            "token": texts[i][1],
            "value": float(found.here[i].mean()),
            "interval": list(found.interval(found.here[i])),
            "critic": None if values is None else float(values[i]),
            "reward": float(found.reward[i]),
            "ended": bool(found.ended[i]),
            "value_after": float(found.after[i].mean()),
            "interval_after": [0.0, 0.0]
            if found.ended[i]
            else list(found.interval(found.after[i])),
            "advantage": float(whole[i]),
        }
        for i in range(len(row))
    ]


# ---------------------------------------------------------------- tables


def branch_tables(document: Mapping[str, Any], width: int) -> list[Any]:
    from rich.text import Text

    states, tokens, quality = document["states"], document["tokens"], document["reference"]
    k = document["branches"]
    head = (
        f"{document['run']}, {document['source']}: {document['rows']} fresh responses to "
        f"{document['task']}, mean score {document['mean_score']:.3f}; {len(states)} states "
        f"of {document['prompts']} prompts, {k} branches from each and from the state after"
    )
    spent = f"tokens drawn: {tokens['batch']:,} batch, {tokens['branches']:,} branches"
    if tokens["columns"]:
        spent += f", {tokens['columns']:,} by the estimators' own columns"
    notes = [f"{spent}; {tokens['all']:,} in all"]
    kind = "Wilson's" if document["binary"] else "normal"
    notes.append(f"V^: mean score of {k} branches, 95 % interval ({kind}); A^ = r + V^(s') - V^(s)")
    if len(states) > SHOWN:
        notes.append(f"{SHOWN} of {len(states)} states; --json has all")
    critic = document["critic"]
    if critic:
        notes.append(
            f"critic: V - V^ is {_told(critic, 'bias')} on average, MSE against the true V "
            f"{_told(critic, 'squared_error')}; {critic['inside']} of {len(states)} inside "
            "the interval"
        )
    after = [
        "bias: mean of a - A^; corr, sign: with A^, sign weighted by |A^|; MSE: against the truth, "
        f"by two halves of {k // 2} branches; ± one standard error over states, those of a prompt "
        "together",
        f"truth: E[A²] = {number(quality['truth'], quality['truth_se'] or 0)}, the MSE of an "
        f"estimator that says 0; noise of A^: {number(quality['noise'])}",
    ]
    best = quality["best_correlation"] or 0.0
    after[-1] += f"; so corr can reach about {best:.2f}"
    if quality["truth"] < 2 * (quality["truth_se"] or 0.0):
        after.append("A is not told from 0 here: corr and sign say nothing; take more branches")
    kl = "KL: not in the target; scores only, for the estimators too"
    if document["kl_in_training"]:
        kl += " (the run has KL in its reward, and its critic learnt with it)"
    after.append(kl)
    after += [f"{r['estimator']}: left out: {r['reason']}" for r in document["not_diagnosable"]]
    parts = [Text(head), _state_table(document, width), *(Text(n, style="dim") for n in notes)]
    return [*parts, _estimator_table(document), *(Text(n, style="dim") for n in after)]


def _told(row: Mapping[str, Any], key: str) -> str:
    return "-" if row[key] is None else number(row[key], row[f"{key}_se"] or 0.0)


def _state_table(document: Mapping[str, Any], width: int) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    wide = width >= 110
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("prompt", max_width=36 if wide else 14, no_wrap=True, overflow="ellipsis")
    table.add_column("so far", max_width=36 if wide else 10, no_wrap=True, overflow="ellipsis")
    table.add_column("token", max_width=12, no_wrap=True, overflow="ellipsis", style="bold")
    heads = ["t", "V^", "95 %", "V", *(["r", "V^(s')", "95 % after"] if wide else []), "A^"]
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    states = document["states"]
    step = max(1.0, len(states) / SHOWN)
    for i in range(min(SHOWN, len(states))):
        s = states[int(i * step)]
        cells = [str(s["position"]), f"{s['value']:.2f}", _range(s["interval"])]
        cells.append("-" if s["critic"] is None else f"{s['critic']:.2f}")
        if wide:
            cells += [f"{s['reward']:.2f}", f"{s['value_after']:.2f}"]
            cells.append("end" if s["ended"] else _range(s["interval_after"]))
        cells.append(f"{s['advantage']:+.2f}")
        table.add_row(
            Text(readable(s["prompt"], "")),
            Text(readable(s["before"], "")),
            Text(s["token"]),
            *cells,
        )
    return table


def _range(interval: Sequence[float]) -> str:
    return f"[{interval[0]:.2f}, {interval[1]:.2f}]"


def _estimator_table(document: Mapping[str, Any]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("estimator", overflow="fold", style="bold")
    for head in ("bias", "95 %", "corr", "sign", "MSE"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in document["estimators"]:
        found = row["bias_interval"]
        between = f"[{number(found[0])}, {number(found[1])}]" if found else "-"
        cells = [_told(row, key) for key in ("correlation", "agreement", "squared_error")]
        table.add_row(name_of(row), _told(row, "bias"), between, *cells)
    return table
