"""Scoring a policy: its samples and their metrics."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rlzoo.errors import UsageError
from rlzoo.plugin.border import border, needs_of
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.train.start import prepare
from rlzoo_lab.compare.eval.pass_at_k import majority_at_k, pass_at_k
from rlzoo_lab.data.comparable import DECODING
from rlzoo_lab.data.weights import choose, open_own
from rlzoo_lab.stats import mean_over, share_over

DEFAULT_SHOWN = 6


def evaluate_policy(
    run: str | None,
    words: list[str],
    *,
    checkpoint: str | None = None,
    ks: list[int],
    responses: int,
    split: str = "test",
    shown: int = DEFAULT_SHOWN,
    next_is: Callable[[str], object] = str,
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Score the policy of a run folder, or of a recipe or the default keys; also returns every
    sample.

    With one response per prompt, the samples are identical to those of a run's own evaluation.
    """
    zoo = load_zoo()
    # Nothing but held-out responses is sampled here, so a rollout's key can only mean theirs.
    rollout = {f"rollout.{name}": f"eval.{name}" for name in DECODING}
    words = [rollout.get(k, k) + eq + v for k, eq, v in (w.partition("=") for w in words)]
    weights = folder = None
    if run is not None:
        for word in words:
            if word.split("=", 1)[0] in ("recipe", "model", "model.name", "model.path"):
                raise UsageError(f"eval: {run} already sets this; remove {word}")
        folder = open_own(run, "its model")
        weights = choose(folder, checkpoint)
        words = [f"recipe={folder.path / 'recipe.yaml'}", *weights.words(), *words]
    # An evaluation ignores a run's loggers, which may not be installed.
    recipe = compose([*words, "loggers=[]"], zoo, need_recipe=False)
    plan = prepare(recipe, zoo, training=False)
    config = recipe.config
    if ks[-1] > 1 and plan.abilities.is_correct is None:
        raise UsageError(
            f"--k: task {plan.task_name!r} does not define which responses are correct (is_correct)"
        )
    from rlzoo.lm.build import build_policy, world_around  # here, and below: torch
    from rlzoo.rollout.evaluation import (
        answer_line,
        answer_probs,
        greedy,
        has_answer_prob,
        response_limit,
    )

    policy = build_policy(config)
    if weights is not None:
        weights.load_into(policy.model)
    world = world_around(plan, policy)
    notes = list(world.engine.notes)
    prompts = config.eval.samples
    shown = min(shown, prompts)
    rows: list[dict[str, Any]] = []
    next_is(what := f"sampling {prompts * responses} responses")
    for row in _samples(world, prompts, responses, split):
        rows.append(row)
        next_is(f"{what}: {len(rows)}")
    next_is("greedy decoding")
    line = metrics(rows, prompts, responses, ks) | {"eval/tokens": sum(r["length"] for r in rows)}
    if has_answer_prob(plan):
        line |= answer_line(answer_probs(world, prompts, split), _kinds(rows[:prompts]))
    document: dict[str, Any] = {
        "run": None if folder is None else str(folder.path),
        "weights": None if weights is None else weights.name,
        "step": None if weights is None else weights.step,
        "model": config.model.name or config.model.path if weights is None else str(weights.path),
        "task": plan.task_name,
        "split": split,
        "prompts": prompts,
        "responses": responses,
        "k": ks,
        **{key: config.eval[key] for key in ("temperature", "top_k", "top_p")},
        "max_new_tokens": response_limit(plan),
        "seed": config.seed,
        "metrics": line | greedy(world, prompts, split=split),
        "own": None if folder is None else _said_by_run(folder.summary()),
        "notes": notes,
        "samples": [rows[i * prompts // shown] for i in range(shown)],  # spread over the prompts
    }
    return document, rows


def _samples(world: Any, prompts: int, responses: int, split: str) -> Iterator[dict[str, Any]]:
    """A row for each response: all prompts once, then once more, ..."""
    from rlzoo.mdp.rules import right_rows
    from rlzoo.plugin.call import own  # torch, as below
    from rlzoo.rollout.evaluation import held_out

    extract = world.plan.abilities.extract
    number = 0
    for batch in held_out(world, prompts, responses, split=split):
        right = right_rows(world.plan, batch)
        answers = batch["responses"]
        if extract is not None:
            with border(f"task {world.plan.task_name!r}: extract"):
                answers = extract(*(own(batch[name]) for name in needs_of(extract)))
        for i in range(batch.rows):
            row = {
                "prompt_number": number % prompts,
                "response_number": number // prompts,
                "prompt": batch["prompts"][i],
                "response": batch["responses"][i],
                "answer": batch["answers"][i],
                "score": batch["sequence_scores"][i].item(),
                "truncated": bool(batch["truncated"][i]),
                "length": int(batch["response_mask"][i].sum()),
            }
            scores = batch["score_components"][i].tolist()
            row["rewards"] = dict(zip(world.plan.rewards, scores, strict=True))
            if right is not None:
                row["right"] = bool(right[i])
                # A truncated response is not an answer: it does not vote.
                row["vote"] = answers[i] if batch["terminated"][i] else None
            yield row
            number += 1


def metrics(
    rows: list[dict[str, Any]], prompts: int, responses: int, ks: list[int]
) -> dict[str, Any]:
    """The metrics of an evaluation, with pass@k and maj@k; intervals are over prompts."""
    groups = [rows[i::prompts] for i in range(prompts)]  # by prompt, as often as it was drawn
    kinds = _kinds(rows[:prompts])

    def mean(name: str) -> float:
        return sum(row[name] for row in rows) / len(rows)

    line: dict[str, Any] = {"eval/score": mean("score")}
    by_prompt = [sum(row["score"] for row in group) / responses for group in groups]
    line["eval/score_low"], line["eval/score_high"] = mean_over(by_prompt, kinds)
    for name in rows[0]["rewards"]:
        line[f"eval/reward/{name}"] = sum(row["rewards"][name] for row in rows) / len(rows)
    if "right" in rows[0]:
        right = [[row["right"] for row in group] for group in groups]
        shares = {"eval/accuracy": [sum(marks) / responses for marks in right]}
        for k in ks if ks != [1] else ():
            shares[f"eval/pass@{k}"] = [pass_at_k(responses, sum(marks), k) for marks in right]
            if k > 1:  # else the majority of one
                votes = [[row["vote"] for row in group] for group in groups]
                shares[f"eval/maj@{k}"] = [
                    majority_at_k(*said, k) for said in zip(votes, right, strict=True)
                ]
        for name, values in shares.items():
            line[name] = sum(values) / prompts
            line[f"{name}_low"], line[f"{name}_high"] = share_over(values, kinds, responses)
        if by_prompt == shares["eval/accuracy"]:  # one number has one interval
            line |= {f"eval/score_{e}": line[f"eval/accuracy_{e}"] for e in ("low", "high")}
    line["eval/samples"] = len(rows)
    line["eval/prompts"] = len(set(kinds))
    line["eval/response_length"] = mean("length")
    line["eval/truncated"] = mean("truncated")
    return line


def _kinds(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """An identifier of each prompt, as `held_out` drew them."""
    return [(row["prompt"], repr(row["answer"])) for row in rows]


def _said_by_run(summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """The run's own record; None if it is incomplete."""
    names = [f"eval_{what}{more}" for what in ("before", "after") for more in ("", "_interval")]
    names += ["eval_metric", "eval_samples"]
    if not summary.keys() >= set(names):
        return None
    names += ["eval_greedy_before", "eval_greedy_after", "eval_gain", "eval_gain_interval"]
    return {name: summary.get(name) for name in names}
