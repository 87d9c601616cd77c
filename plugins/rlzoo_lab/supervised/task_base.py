"""A new base model for a task: trains on correct demonstrations up to the requested accuracy."""

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers.utils import logging

from rlzoo.errors import RlzooError
from rlzoo.format.console import SafeConsole
from rlzoo.format.text import printable
from rlzoo.lm.build import build_policy, world_around
from rlzoo.lm.world import World
from rlzoo.mdp.rules import demonstration, draw_examples, right_rows
from rlzoo.plugin.protocols import abilities
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout.evaluation import evaluate, held_out, response_limit
from rlzoo.runs.metrics import headline
from rlzoo_lab.supervised.tiny import CHARACTERS, build_model, build_tokenizer, save
from rlzoo_lab.supervised.warm_start import warm_start, with_ends

DRAWN = 2048  # examples by which the characters and lengths of a task are found
EVERY, FEW = 5, 128  # steps between looks at held-out prompts, and how many those are


def make_task_base(
    name: str, words: Sequence[str], zoo: Zoo, spec: dict[str, Any], accuracy: float, out: Path
) -> dict[str, Any]:
    """Train a model of the size in `spec` on the task's correct demonstrations until sampled
    answers to held-out prompts reach `accuracy`, or for spec["steps"]; save it as a transformers
    folder `out`. Returns the report.

    The accuracy is that of `rlzoo eval`, over `eval.samples` prompts; where no answer is right or
    wrong it is the mean score. Estimates on few prompts decide when to measure it.
    """
    began = time.monotonic()
    torch.set_num_threads(1)  # nothing this small gains by more
    logging.disable_progress_bar()
    all_words = [f"task={name}", f"model.path={out}", "device=cpu", *words]
    recipe = compose(all_words, zoo, need_recipe=False)
    plan = make_plan(recipe, zoo)
    if abilities(plan.task).demonstrate is None:
        raise RlzooError(
            f"base: task {name} has no demonstrations for {shlex.join(words) or 'these options'}; "
            f"a game must have a scripted player ({', '.join(getattr(plan.task, 'players', ()))}), "
            "must let the policy move first, and must not score above 1"
        )
    texts, longest = shown(plan.task, plan.task_name, spec["seed"], response_limit(plan))
    more = "".join(sorted(set("".join(texts)).difference(CHARACTERS)))
    tokenizer = build_tokenizer(more)
    positions = max(longest, spec["architecture"]["max_position_embeddings"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(spec["seed"])
        architecture = spec["architecture"] | {"max_position_embeddings": positions}
        save(build_model(architecture, tokenizer), tokenizer, out)
    policy = build_policy(recipe.config)
    world = world_around(plan, policy)
    console = SafeConsole(stderr=True)
    if more:
        signs = printable(" ".join(more[:40]))
        console.print(f"{len(more)} characters beyond ASCII also get tokens: {signs}")
    line: dict[str, Any] = {}
    status = console.status("")

    def progress(done: int, steps: int, loss: float) -> bool:
        line.clear()
        if done % EVERY and done < steps:
            return False
        rate = look(world)
        status.update(
            f"step {done} of at most {steps}: loss {loss:.3f}, held-out accuracy {rate:.2f}, "
            f"target {accuracy:g}"
        )
        if rate < accuracy and done < steps:
            return False
        line.update(evaluate(world, recipe.config.eval.samples)[0], steps=done)
        return headline(line)[1] >= accuracy

    part = {"task": name, "weight": 1.0, "right": spec["right"]}
    with status:
        warm_start(
            policy.model, tokenizer, spec | {"mix": {name: part}}, {name: plan.task}, progress
        )
    save(policy.model, tokenizer, out)
    metric, value, low, high = headline(line)
    return {
        "task": name, "words": list(words), "metric": metric, metric: value,
        "low": low, "high": high, "greedy": line["eval/greedy"],
        "prompts": line["eval/samples"], "steps": line["steps"], "asked": accuracy,
        "characters": more, "seconds": time.monotonic() - began,
    }  # fmt: skip


def look(world: World) -> float:
    """The share of correct samples for a few held-out prompts, or their mean score if there is no
    correctness."""
    found: list[float] = []
    for batch in held_out(world, FEW):
        right = right_rows(world.plan, batch)
        found += (batch["sequence_scores"] if right is None else right.float()).tolist()
    return sum(found) / len(found)


def shown(task: Any, name: str, seed: int, limit: int) -> tuple[list[str], int]:
    """Prompts and demonstrations of some examples as texts, and the tokens of the longest prompt
    with a response of `limit`; raises RlzooError if no model could learn from them."""
    generator = torch.Generator().manual_seed(seed)
    texts, longest, cut, most = [], 0, 0, 0
    for split, count in (("train", DRAWN), ("test", DRAWN // 4)):
        for example in draw_examples(task, name, split, count, generator):
            if not isinstance(example.prompt, str):
                raise RlzooError(
                    f"base: the prompts of task {name!r} are chat messages, but a small model has "
                    "no chat template; use `rlzoo model sft` with a model that has one"
                )
            right, wrong = demonstration(task, name, example, generator)
            texts += [example.prompt]
            if not isinstance(right, str):
                texts += [*right, *wrong]
                right = "".join(with_ends(right, abilities(task).stops))
            else:
                texts += [right, wrong]
                most = max(most, len(right) + 1)
                cut += len(right) + 1 > limit
            longest = max(longest, len(example.prompt) + max(limit, len(right) + 1))
    if cut:
        raise RlzooError(
            f"base: {cut} of {DRAWN + DRAWN // 4} correct answers of task {name!r} are longer "
            f"than rollout.max_new_tokens={limit}; the longest needs "
            f"rollout.max_new_tokens={most}, EOS included"
        )
    return texts, longest
