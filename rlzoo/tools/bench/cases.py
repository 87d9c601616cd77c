"""What `rlzoo bench` measures: one case, in a process of its own.

    python -P rlzoo/bench_cases.py '{"case": "step", ...}'

prints one JSON line. A case is warmed up, then repeated; each repeat gives its tokens, CPU and wall
seconds, and the process its peak memory, so that no case's memory hides another's. It is started
by its path: so it can measure any checkout of rlzoo that PYTHONPATH names.
"""

import contextlib
import functools
import gc
import importlib.util
import json
import mmap
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

Spec = Mapping[str, Any]

Sample = dict[str, Any]  # tokens, cpu, wall, and whatever else a case tells


def _peer() -> Any:
    """The module of TRL's side, for the reward and the clocks that both sides share."""
    path = Path(__file__).with_name("peer_trl.py")
    found = importlib.util.spec_from_file_location("rlzoo_bench_peer", path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["rlzoo_bench_peer"] = module  # where the recipe's reward function is found
    found.loader.exec_module(module)
    return module


peer = _peer()


def held_mb() -> float | None:
    """The memory that this process holds now, where the system tells."""
    path = Path("/proc/self/statm")
    return int(path.read_text().split()[1]) * mmap.PAGESIZE / 2**20 if path.is_file() else None


def measure(
    once: Callable[[], Sample], spec: Spec, *, before: Callable[[], Any] | None = None
) -> list[Sample]:
    """`repeat` runs of `once` after `warmup` unmeasured ones; `before` each, unmeasured."""
    found = []
    for i in range(spec["warmup"] + spec["repeat"]):
        if before is not None:
            before()
        if i == spec["warmup"]:
            gc.collect()
        cpu, wall = peer.cpu_seconds(), time.perf_counter()
        sample = once()
        sample["cpu"], sample["wall"] = peer.cpu_seconds() - cpu, time.perf_counter() - wall
        found.append(sample)
    return found[spec["warmup"] :]


# ---------------------------------------------------------------- the models


def model(spec: Spec) -> dict[str, Any]:
    """Makes a workload's model: a Llama of random weights, seed 0, and its tokenizer, saved as a
    transformers folder.

    ends: the probability of EOS at each token, or None for what random weights give it (1 / V).
    """
    from rlzoo.lm.tiny import CHARACTERS, build_model, build_tokenizer

    tokenizer = build_tokenizer()
    special = len(tokenizer) - len(CHARACTERS)
    tokenizer.add_tokens([f" {i}" for i in range(len(CHARACTERS), spec["vocabulary"] - special)])
    torch.manual_seed(0)
    made = build_model(spec["architecture"], tokenizer)
    if spec["ends"] is not None:
        _end_at(made, tokenizer.eos_token_id, spec["ends"])
    made.save_pretrained(spec["folder"])
    tokenizer.save_pretrained(spec["folder"])
    return {"parameters": sum(p.numel() for p in made.parameters()), "samples": []}


@torch.no_grad()
def _end_at(made: Any, eos: int, share: float) -> None:
    """Give EOS about the probability `share` after any text: the first coordinate of every
    embedding is 1, so that it stays well above 0 to the last layer, and EOS alone answers to it."""
    read, write = made.get_input_embeddings().weight, made.get_output_embeddings().weight
    read[:, 0] = 1.0
    ids = torch.randint(len(read), (64, 16), generator=torch.Generator().manual_seed(0))
    height = made.base_model(input_ids=ids)[0][..., 0].mean()
    odds = share / (1 - share) * (len(write) - 1)
    write[eos, 0] += torch.tensor(odds).log() / height


@functools.cache
def _zoo() -> Any:
    from rlzoo.plugin.registry import load_zoo

    return load_zoo()


def _models(spec: Spec) -> Any:
    from rlzoo.lm.build import build_models
    from rlzoo.recipe.compose import compose
    from rlzoo.recipe.plan import make_plan

    models = build_models(make_plan(compose(spec["words"], _zoo()), _zoo()))
    torch.set_num_threads(spec["threads"])
    return models


# ---------------------------------------------------------------- cases


def prompts(spec: Spec) -> dict[str, Any]:
    """The prompts of the steps that `step` takes, for a peer: the same, in the same order."""
    from rlzoo.rollout.sample import draw

    models = _models(spec)
    n = models.plan.recipe.config.rollout.prompts
    steps = spec["warmup"] + spec["repeat"]
    texts = [e.prompt for i in range(steps) for e in draw(models, "train", n, "train", i)]
    return {"prompts": texts, "samples": []}


def step(spec: Spec) -> dict[str, Any]:
    """A whole training step: prompts, sampling, scoring, columns, advantages, update."""
    from rlzoo.train.trainer import Trainer

    trainer = Trainer(_models(spec))
    trainer.clock = peer.cpu_seconds  # what else runs lengthens wall seconds
    meter = trainer.models.meter

    def once() -> Sample:
        before = meter.tokens
        _, metrics = trainer.step()
        phases = {k[9:]: v for k, v in metrics.items() if k.startswith("timing_s/")}
        return {"tokens": meter.tokens - before, "phases": phases}

    return {"samples": measure(once, spec)}


def sampling(spec: Spec) -> dict[str, Any]:
    """Prompts, sampling and scoring: what a rollout is before its columns."""
    from rlzoo.rollout.sample import collect, draw

    models = _models(spec)
    rollout = models.plan.recipe.config.rollout
    done = 0

    def once() -> Sample:
        nonlocal done
        before = models.meter.tokens
        examples = draw(models, "train", rollout.prompts, "train", done)
        collect(models, examples, rollout.samples, stream="train", step=done)
        done += 1
        return {"tokens": models.meter.tokens - before}

    return {"samples": measure(once, spec)}


def head(spec: Spec) -> dict[str, Any]:
    """Log-probs and entropy of one mini-batch, and the gradient of the log-probs.

    how: `score` is the policy's own head, `plain` what one writes first: logits in float32,
    log_softmax, gather; `trunk` only the model below it.
    """
    policy = _models(spec).policy
    rows, steps, before = spec["rows"], spec["steps"], 8  # prompt tokens
    draw = torch.Generator().manual_seed(0)
    size = policy.model.config.vocab_size
    ids = torch.randint(3, size, (rows, before + steps), generator=draw)
    upstream = torch.randn(rows, steps, generator=draw) / (rows * steps)
    ones = torch.ones(rows, before + steps)
    columns = {
        "prompt_ids": ids[:, :before],
        "prompt_mask": ones[:, :before],
        "response_ids": ids[:, before:],
        "response_mask": ones[:, before:],
        "response_attention": ones[:, before:],
    }

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

    def once() -> Sample:
        (upstream * run()).sum().backward()
        policy.model.zero_grad(set_to_none=True)
        return {"tokens": rows * steps}

    return {"samples": measure(once, spec), "loaded_mb": loaded}


def estimator(spec: Spec) -> dict[str, Any]:
    """One estimator, as a run calls it, on made-up columns: ragged rows with holes, groups of 8."""
    from rlzoo.checks.made_up import made_up

    zoo = _zoo()
    component = zoo.estimators[spec["name"]]
    rows, steps = spec["rows"], spec["steps"]
    draw = torch.Generator().manual_seed(0)
    length = torch.randint(steps // 2, steps + 1, (rows, 1), generator=draw)
    place = torch.arange(steps)
    hole = torch.randint(0, steps, (rows, 1), generator=draw)
    on = (place < length) & ~((place >= hole) & (place < hole + steps // 40))
    groups = torch.arange(rows) // 8
    columns = made_up(zoo, mask=on.double(), groups=groups, dtype=torch.float32)
    columns = {name: columns[name] for name in (*component.needs, "response_mask")}
    tokens = int(on.sum())

    def once() -> Sample:
        component(columns)
        return {"tokens": tokens}

    return {"samples": measure(once, spec)}


def first_metric(spec: Spec) -> dict[str, Any]:
    """From the start of this process to the first number of a run: imports, recipe, models, the
    evaluation of the starting policy. It ends the process."""
    import rlzoo
    from rlzoo.runs.display import Silent

    class FirstOnly(Silent):
        def evaluation(self, found: dict[str, Any]) -> None:
            raise KeyboardInterrupt

        def step(self, line: dict[str, Any], progress: float) -> None:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        words = [*spec["words"], f"run.dir={spec['folder']}"]
        rlzoo.run(spec["recipe"], words, display=FirstOnly())
    return {"samples": [{"tokens": 0, "cpu": peer.cpu_seconds()}]}


CASES: dict[str, Callable[[Spec], dict[str, Any]]] = {
    f.__name__: f for f in (model, prompts, step, sampling, head, estimator, first_metric)
}


def main(text: str) -> None:
    line, sys.stdout = sys.stdout, sys.stderr  # whatever else prints must not spoil the one line
    spec = json.loads(text)
    torch.set_num_threads(spec["threads"])
    found = CASES[spec["case"]](spec)
    import rlzoo

    versions = {"rlzoo": rlzoo.__version__, "torch": torch.__version__}
    print(json.dumps({**found, "peak_mb": peer.peak_mb(), "versions": versions}), file=line)


if __name__ == "__main__":
    main(sys.argv[1])
