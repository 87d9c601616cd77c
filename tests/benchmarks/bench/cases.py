"""The cases of `python tests/benchmarks/bench`; each runs in its own process.

    python -m bench.cases '{"case": "step", ...}'

prints one JSON line. A case is warmed up, then repeated. Each repeat reports its tokens, CPU
seconds and wall seconds, and the process reports its peak memory. Each case has its own process and
imports, so that the memory of one case does not hide that of another.
"""

import contextlib
import json
import math
import sys
from collections.abc import Callable
from typing import Any

import torch

import rlzoo
from bench.common import (
    Sample,
    Spec,
    Told,
    cpu_seconds,
    held_mb,
    measure,
    peak_mb,
    steps_of,
)
from rlzoo.runs.display import Silent


def model(spec: Spec) -> Told:
    """Makes a workload's model: a Llama of random weights, seed 0, and its tokenizer, saved as a
    transformers folder.

    ends: the probability of EOS at each token, or None for that of random weights (1 / V).
    """
    from rlzoo_lab.supervised.tiny import CHARACTERS, build_model, build_tokenizer

    tokenizer = build_tokenizer()
    special = len(tokenizer) - len(CHARACTERS)
    tokenizer.add_tokens([f" {i}" for i in range(len(CHARACTERS), spec["vocabulary"] - special)])
    torch.manual_seed(0)
    made = build_model(spec["architecture"], tokenizer)
    if spec["ends"] is not None:
        _end_at(made, tokenizer.eos_token_id, spec["ends"])
    made.save_pretrained(spec["folder"])
    tokenizer.save_pretrained(spec["folder"])
    return {"parameters": sum(p.numel() for p in made.parameters())}


@torch.no_grad()
def _end_at(made: Any, eos: int, share: float) -> None:
    """Give EOS about the probability `share` after any text: the first coordinate of every
    embedding is 1, so that it stays well above 0 to the last layer, and only EOS responds to it."""
    read, write = made.get_input_embeddings().weight, made.get_output_embeddings().weight
    read[:, 0] = 1.0
    ids = torch.randint(len(read), (64, 16), generator=torch.Generator().manual_seed(0))
    height = made.base_model(input_ids=ids)[0][..., 0].mean()
    odds = share / (1 - share) * (len(write) - 1)
    write[eos, 0] += torch.tensor(odds).log() / height


def _world(spec: Spec) -> Any:
    from rlzoo.lm.build import build_world
    from rlzoo.plugin.registry import load_zoo
    from rlzoo.recipe.compose import compose
    from rlzoo.recipe.plan import make_plan

    zoo = load_zoo()
    world = build_world(make_plan(compose(spec["words"], zoo), zoo))
    torch.set_num_threads(spec["threads"])
    return world


def prompts(spec: Spec) -> Told:
    """The prompts of `step`, for a peer: the same prompts in the same order."""
    from rlzoo.rollout.sample import draw

    world = _world(spec)
    n = world.plan.recipe.config.rollout.prompts
    steps = spec["warmup"] + spec["repeat"]
    texts = [e.prompt for i in range(steps) for e in draw(world, "train", n, "train", i)]
    return {"prompts": texts}


def step(spec: Spec) -> Told:
    """A whole training step: prompts, sampling, scoring, columns, advantages, update."""
    from rlzoo.step.trainer import Trainer

    trainer = Trainer(_world(spec))
    trainer.clock = cpu_seconds  # what else runs lengthens wall seconds
    return measure(steps_of(trainer), spec)


def phases(spec: Spec) -> Told:
    """The same, with the FLOP of each phase's matrix products and what a large product takes."""
    from torch.utils.flop_counter import FlopCounterMode

    from rlzoo.step.trainer import Trainer

    trainer = Trainer(_world(spec))
    trainer.clock = cpu_seconds
    once = steps_of(trainer)

    def linear(x: Any, *_: Any, out_shape: Any, **__: Any) -> int:
        return 2 * math.prod(out_shape) * x[-1]

    # oneDNN's layers (`rlzoo.accel.hf_internals.by_onednn`), which torch does not count
    known = {torch.ops.mkldnn._linear_pointwise: linear}
    with FlopCounterMode(display=False, custom_mapping=known) as counter:
        trainer.clock = counter.get_total_flops
        counted = once(0)["phases"]
    trainer.clock = cpu_seconds
    a = torch.randn(1024, 1024)
    products = measure(lambda _: {"product": a @ a}, {"warmup": 2, "repeat": 20})["samples"]
    rate = 2 * 1024**3 / min(s["cpu"] for s in products)
    return {**measure(once, spec), "flop": counted, "gflops": rate / 1e9}


def sampling(spec: Spec) -> Told:
    """A rollout without its columns: prompts, sampling and scoring."""
    from rlzoo.rollout.sample import collect, draw

    world = _world(spec)
    rollout = world.plan.recipe.config.rollout

    def once(i: int) -> Sample:
        before = world.engine.meter.tokens
        examples = draw(world, "train", rollout.prompts, "train", i)
        collect(world, examples, rollout.samples, stream="train", step=i)
        return {"tokens": world.engine.meter.tokens - before}

    return measure(once, spec)


def head(spec: Spec) -> Told:
    """Log-probs and entropy of one mini-batch, and the gradient of the log-probs.

    how: `score` is the policy's own head, `plain` the straightforward version (logits in float32,
        log_softmax, gather), `trunk` only the model below the head.
    """
    from bench.gpu import rows_of

    policy = _world(spec).policy
    rows, steps = spec["rows"], spec["steps"]
    columns = rows_of(policy, rows, steps)
    ids = torch.cat([columns["prompt_ids"], columns["response_ids"]], 1)
    before = columns["prompt_ids"].shape[1]
    draw = torch.Generator().manual_seed(1)
    upstream = torch.randn(rows, steps, generator=draw) / (rows * steps)

    def score() -> torch.Tensor:
        return policy.log_prob_stats(columns, want=("entropy",), entropy_grad=False)["log_probs"]

    def plain() -> torch.Tensor:
        logits = policy.model(input_ids=ids, use_cache=False).logits[:, before - 1 : -1]
        log_pi = (logits.float() / policy.temperature).log_softmax(-1)
        with torch.no_grad():
            _ = -(log_pi.exp() * log_pi).sum(-1)
        return log_pi.gather(-1, columns["response_ids"][..., None]).squeeze(-1)

    def trunk() -> torch.Tensor:
        return policy.model.base_model(input_ids=ids, use_cache=False)[0][:, before:].mean(-1)

    run = {"score": score, "plain": plain, "trunk": trunk}[spec["how"]]
    loaded = held_mb()

    def once(i: int) -> Sample:
        (upstream * run()).sum().backward()
        policy.model.zero_grad(set_to_none=True)
        return {"tokens": rows * steps}

    return {**measure(once, spec), "loaded_mb": loaded}


def estimator(spec: Spec) -> Told:
    """One estimator, as a run calls it, on synthetic columns: ragged rows with holes, groups of
    8."""
    from rlzoo.plugin.registry import load_zoo
    from rlzoo_lab.kit.checks.made_up import made_up

    zoo = load_zoo()
    component = zoo.estimators[spec["name"]]
    rows, steps = spec["rows"], spec["steps"]
    draw = torch.Generator().manual_seed(0)
    length = torch.randint(steps // 2, steps + 1, (rows, 1), generator=draw)
    place = torch.arange(steps)
    hole = torch.randint(0, steps, (rows, 1), generator=draw)
    on = (place < length) & ~((place >= hole) & (place < hole + steps // 40))
    groups = torch.arange(rows) // 8
    columns = made_up(zoo, mask=on.double(), groups=groups, dtype=torch.float32)
    needs = component.needs_with(component.check_options({}))
    columns = {name: columns[name] for name in (*needs, "response_mask")}
    tokens = int(on.sum())

    def once(i: int) -> Sample:
        component(columns)
        return {"tokens": tokens}

    return measure(once, spec)


def device(spec: Spec) -> Told:
    """A case of `python tests/benchmarks/bench gpu`."""
    from bench import gpu

    what = spec["what"]
    return gpu.limits(spec) if what == "limits" else gpu.CASES[what](_world(spec), spec)


def first_metric(spec: Spec) -> Told:
    """From the start of this process to the first number of a run: imports, recipe, world, the
    evaluation of the starting policy. It ends the process."""

    class FirstOnly(Silent):
        def evaluation(self, found: dict[str, Any]) -> None:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        words = [*spec["words"], f"run.dir={spec['folder']}"]
        rlzoo.run(spec["recipe"], words, display=FirstOnly())
    return {"samples": [{"tokens": 0, "cpu": cpu_seconds()}]}


CASES: dict[str, Callable[[Spec], Told]] = {
    f.__name__: f
    for f in (model, prompts, step, phases, sampling, head, estimator, device, first_metric)
}


def main(text: str) -> None:
    line, sys.stdout = sys.stdout, sys.stderr  # whatever else prints must not spoil the one line
    spec = json.loads(text)
    torch.set_num_threads(spec["threads"])
    told = CASES[spec["case"]](spec)

    versions = {"rlzoo": rlzoo.__version__, "torch": torch.__version__}
    print(json.dumps({**told, "peak_mb": peak_mb(), "versions": versions}), file=line)


if __name__ == "__main__":
    main(sys.argv[1])
