"""`rlzoo diagnose RUN --branches K`: estimators against branch rollouts, in worlds too large to
enumerate.

K complete responses are drawn from each of some states of a new batch, and from the states after
their tokens. Their mean scores estimate V(s) and V(s'), and A^ = r + V^(s') - V^(s) estimates A.
The branches are drawn in two independent halves, so their references A1 and A2 have independent
errors, and E[(a - A1)(a - A2)] is the squared error against the true A.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError, RunError, first_line
from rlzoo.format.text import readable
from rlzoo.lm.build import build_world
from rlzoo.lm.loading import load_causal_lm
from rlzoo.lm.world import World
from rlzoo.mdp import noise
from rlzoo.mdp.batch import Batch
from rlzoo.mdp.rules import decoded, token_name
from rlzoo.ops import group_mean
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import CRITIC_COLUMNS, Plan, make_plan
from rlzoo.rollout.sample import collect, draw
from rlzoo.runs.folder import RunFolder
from rlzoo.step.columns import add_columns, add_rewards, loss_mask
from rlzoo.train.checkpoint import load_checkpoint
from rlzoo_lab.data.variants import make_plans, together
from rlzoo_lab.data.weights import open_own
from rlzoo_lab.data.words import is_run
from rlzoo_lab.diagnose.against import against, critic_against, reference_quality
from rlzoo_lab.diagnose.asked import estimators_of, own_and_others, row_head
from rlzoo_lab.diagnose.branch_rollouts import STREAM, Reference, choose_tokens, make_reference


def branch_document(arguments: argparse.Namespace) -> dict[str, Any]:
    run, *words = arguments.words
    if not is_run(run):
        raise RlzooError(
            "--branches: give a RUN folder, not a recipe, because the rollouts need a run's policy"
        )
    if arguments.branches is None:
        raise RlzooError("--states: also give --branches K, the number of rollouts from each state")
    for word in words:
        if "=" not in word:
            raise RlzooError(f"diagnose: {word!r} is not a key=value")
    return diagnose_branches(run, words, branches=arguments.branches, states=arguments.states)


@torch.no_grad()
def diagnose_branches(
    path: str, words: list[str], *, branches: int, states: int | None = None
) -> dict[str, Any]:
    """The document that `--json` prints.

    words: estimator=... and options (by default, the run's estimator and all others), and other
        keys.
    branches: K, the number of rollouts from each state; even. states: N, the number of states.
    """
    if branches < 2 or branches % 2:
        raise RlzooError(f"--branches must be even (two halves) and at least 2. Got {branches}")
    if states is not None and states < 2:
        raise RlzooError(f"--states must be at least 2. Got {states}")
    folder = open_own(path, "its model")
    zoo = load_zoo()
    run_plan, plans, undone = _plans(folder, words, zoo)
    world = build_world(together([run_plan, *plans]))
    source, step = _load(folder, world)
    batch, tokens = _fresh_batch(world, step)
    row, at = _start_states(run_plan, batch, states, step)
    reference = make_reference(world, batch, row, at, branches, step)
    tokens["all"] = world.meter.tokens
    tokens["branches"] = tokens["all"] - tokens["batch"] - tokens["columns"]

    clusters = batch["group_ids"].cpu()[row].numpy()
    values = batch["values"].cpu()[row, at].double().numpy() if "values" in batch else None
    critic = None
    if values is not None:
        critic = critic_against(values, reference, clusters, at.numpy())
    rows, failed = [], []
    for plan in plans:
        name = plan.estimator.name
        try:
            raw = plan.estimator(batch)["advantages"].cpu()[row, at].double().numpy()
        except RlzooError as error:
            failed.append({"estimator": name, "reason": str(error)})
            continue
        head = row_head(plan.estimator, words)
        rows.append({**head, **against(raw, reference.first, reference.second, clusters)})
    kl = compose([f"recipe={folder.path / 'recipe.yaml'}"], zoo).config.kl
    return {
        "run": str(folder.path),
        "source": source,
        "step": step,
        "task": run_plan.task_name,
        "rows": batch.rows,
        "mean_score": batch["sequence_scores"].double().mean().item(),
        "branches": branches,
        "states": _states(world.tokenizer, batch, row, at, reference, values),
        "prompts": len(set(clusters.tolist())),
        "binary": reference.binary,
        "tokens": tokens,
        "kl_in_target": False,
        "kl_in_training": bool(kl.place == "reward" and kl.coef > 0),
        "reference": reference_quality(reference, clusters),
        "critic": critic,
        "estimators": rows,
        "not_diagnosable": undone,
        "failed": failed,
    }


def _plans(
    folder: RunFolder, words: list[str], zoo: Zoo
) -> tuple[Plan, list[Plan], list[dict[str, str]]]:
    """The run's own plan, that of each estimator, and those that cannot be evaluated."""
    base = [f"recipe={folder.path / 'recipe.yaml'}", "kl.place=none"]
    other = [w for w in words if not w.startswith("estimator")]
    run_plan = make_plan(compose([*base, *other], zoo), zoo)
    named = len(other) < len(words)
    if named:
        recipes = estimators_of([*base, *words], zoo)
    else:
        recipes = own_and_others([*base, *other], run_plan.estimator.name, zoo)
    plans, undone = [], {}
    made = {column.name for column in run_plan.columns}
    for name, plan, why in make_plans(recipes, zoo):
        if plan is None:
            undone[name] = why
            continue
        wanted = set(plan.estimator.needs) & set(CRITIC_COLUMNS)
        more = {column.name for column in plan.columns} - made
        if wanted and not run_plan.critic:
            undone[name] = f"needs {min(wanted)}, but this run has no critic"
        elif more and not named:
            undone[name] = (
                f"needs {', '.join(sorted(more))}, which the run does not compute; set "
                "estimator=NAME to compute them"
            )
        else:
            plans.append(plan)
    if not plans:
        name, why = next(iter(undone.items()))
        raise RunError(f"{folder.path}: no estimator can be evaluated; {name}: {why}")
    return run_plan, plans, [{"estimator": n, "reason": why} for n, why in undone.items()]


def _load(folder: RunFolder, world: World) -> tuple[str, int]:
    """Put the run's newest whole checkpoint, or its final model, into the models: which, and its
    step."""
    try:
        state, _ = load_checkpoint(folder.checkpoints, world.engine.networks, {})
    except OSError as error:
        raise RunError(f"{folder.checkpoints}: {first_line(error)}") from None
    if state is not None:
        return f"checkpoint of step {state['step']}", state["step"]
    model = folder.path / "model"
    if world.critic is not None or not (model / "config.json").is_file():
        raise RunError(f"{folder.path} has no checkpoint yet; wait for one, or resume the run")
    world.policy.model.load_state_dict(load_causal_lm(Path(model)).state_dict())
    return "final model", 0


def _fresh_batch(world: World, step: int) -> tuple[Batch, dict[str, int]]:
    """Responses of the run's policy with their columns, and how many tokens each took."""
    plan, meter = world.plan, world.meter
    rollout = plan.recipe.config.rollout
    examples = draw(world, "test", rollout.prompts, STREAM, step)
    batch = collect(
        world, examples, rollout.samples, stream=f"{STREAM}/batch", step=step,
        sampler=plan.base_sampler,
    )  # fmt: skip
    tokens = {"batch": meter.tokens}
    add_columns(world, batch, stream=f"{STREAM}/batch", step=step)
    tokens["columns"] = meter.tokens - tokens["batch"]
    add_rewards(plan, batch, 0.0)
    if plan.conversation or bool((batch["response_attention"] != batch["response_mask"]).any()):
        raise RlzooError(
            "--branches: these responses contain observations, which branches cannot continue"
        )
    return batch, tokens


STATES = 64  # by default, or all of a batch that has fewer


def _start_states(plan: Plan, batch: Batch, states: int | None, step: int) -> tuple[Tensor, Tensor]:
    """Rows and positions, (N,) each, of the states to start from."""
    mask = loss_mask(plan, batch).cpu()
    there = int(mask.sum())
    if there < 2 or (states or 0) > there:
        raise RlzooError(f"--states: this batch has {there} tokens. Got {states or STATES}")
    draw = noise.generator(plan.recipe.config.seed, f"{STREAM}/states", step)
    return choose_tokens(mask, states or min(STATES, there), draw)


def _states(
    tokenizer: Any, batch: Batch, row: Tensor, at: Tensor, reference: Reference, values: Any
) -> list[dict[str, Any]]:
    """Each state with its token, and the branches' estimates for both."""
    groups = group_mean(batch["sequence_scores"], batch["group_ids"])
    after = [[0.0, 0.0] if end else list(reference.interval(scores))
             for end, scores in zip(reference.ended, reference.after, strict=True)]  # fmt: skip
    states = []
    for i, (r, t) in enumerate(zip(row.tolist(), at.tolist(), strict=True)):
        ids = batch["response_ids"][r, : t + 1].tolist()
        states.append(
            {
                "row": r,
                "position": t,
                "prompt": batch["prompts"][r],
                "score": float(batch["sequence_scores"][r]),
                "group_score": float(groups[r]),
                "before": decoded(tokenizer, [ids[:t]])[0],
                "token": readable(decoded(tokenizer, [ids[t:]])[0], token_name(tokenizer, ids[t])),
                "value": float(reference.here[i].mean()),
                "interval": list(reference.interval(reference.here[i])),
                "critic": None if values is None else float(values[i]),
                "reward": float(reference.reward[i]),
                "ended": bool(reference.ended[i]),
                "value_after": float(reference.after[i].mean()),
                "interval_after": after[i],
                "advantage": float(reference.estimate[i]),
            }
        )
    return states
