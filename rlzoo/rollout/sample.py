"""Makes a batch from prompts: samples responses and scores them."""

from typing import Any

import torch
from torch import Tensor

from rlzoo.lm.models import Models
from rlzoo.mdp import noise
from rlzoo.mdp import rules as mdp
from rlzoo.mdp.batch import Batch, concatenate, left_pad
from rlzoo.mdp.rules import draw_examples
from rlzoo.ops import on_host, put
from rlzoo.plugin.border import Bound, border
from rlzoo.plugin.component import Example
from rlzoo.rollout.responses import respond


def draw(models: Models, split: str, n: int, stream: str, step: int) -> list[Example]:
    """n prompts of the task, a function of (seed, stream, step)."""
    generator = noise.generator(models.seed, f"prompts/{stream}", step)
    return draw_examples(models.plan.task, models.plan.task_name, split, n, generator)


def collect(
    models: Models,
    examples: list[Example],
    samples: int,
    *,
    stream: str,
    step: int,
    first_row: int = 0,
    sampler: Bound | None = None,
    limit: int | None = None,
    greedy: bool = False,
) -> Batch:
    """Sample `samples` responses to each prompt and score them: the columns up to `scores`.

    first_row: number of the first row, for batches that are parts of one.
    sampler: the plan's unless another is given. limit: the most tokens of a response. As `sampler`,
    greedy: use the most likely token each time.
    Several ranks share the prompts, and all of them get the whole batch.
    """
    sampler = sampler or models.plan.sampler
    ranks, meter = models.ranks, models.meter
    shared = ranks.count > 1 and len(examples) >= ranks.count  # fewer: each rank does them all
    mine = ranks.block(len(examples)) if shared else range(len(examples))
    before = meter.tokens
    with models.sampling(sampler.needs):
        batch = _collect(
            models, examples[mine.start : mine.stop], samples, first_row + mine.start * samples,
            sampler, limit, greedy, stream=stream, step=step,
        )  # fmt: skip
    if not shared:
        return batch
    meter.tokens = before + sum(ranks.gather(meter.tokens - before))
    own = {n: x.cpu() if isinstance(x, Tensor) else x for n, x in batch.items()}
    return concatenate(ranks.gather(own), models.policy.pad_id, models.policy.device)


def _collect(
    models: Models,
    examples: list[Example],
    samples: int,
    first_row: int,
    sampler: Bound,
    max_new_tokens: int | None,
    greedy: bool,
    *,
    stream: str,
    step: int,
) -> Batch:
    plan, prompt_format = models.plan, models.prompt_format
    rows = [e for e in examples for _ in range(samples)]
    device = models.policy.device
    prompt_rows = prompt_format.encode_each(e.prompt for e in rows)
    ids, mask = left_pad(prompt_rows, models.policy.pad_id, device)
    number = torch.arange(len(rows)) + first_row
    domain_of = plan.abilities.domain_of
    with border(f"task {plan.task_name!r}: domain_of"):
        domains = [str(domain_of(e)) if domain_of else "" for e in rows]
    prompts: dict[str, Any] = {
        "prompts": [prompt_format.text(e.prompt) for e in rows],
        "messages": [prompt_format.messages(e.prompt) for e in rows],
        "answers": [e.answer for e in rows],
        "domains": domains,
        "prompt_ids": ids,
        "prompt_mask": mask,
        "prompt_index": put(torch.tensor([e.index for e in rows]), device),
        "group_ids": put(number // samples, device),
    }
    drawn = respond(
        models,
        sampler,
        prompts,
        number,
        stream=stream,
        step=step,
        max_new_tokens=max_new_tokens,
        greedy=greedy,
    )
    policy, rollout = models.policy, plan.recipe.config.rollout
    other = policy.halves or policy.sampled_by or rollout.staleness  # halves round as they please
    exact, mode = policy.sampled_as_scored and not other, rollout.old_log_probs
    if mode == "recomputed" or (mode == "auto" and not exact):
        drawn.pop("old_log_probs", None)
    elif mode == "sampled" and "sampler_log_probs" in drawn:  # another engine returns no more
        drawn.setdefault("old_log_probs", drawn["sampler_log_probs"])
    if "sampler_log_probs" in drawn:  # of a model in float64 the scores are in float64, too
        kind = drawn["sampler_log_probs"].dtype
        masks = ("response_mask", "response_attention")
        drawn |= {n: put(on_host(drawn[n]).to(kind), device) for n in masks}
    batch = Batch(drawn.pop("response_mask"))
    batch.update(prompts)
    batch.update(drawn)
    if "turns" in plan.needs and "turns" not in batch:
        batch.add("turns", [[text] for text in batch["responses"]])
    if "noise" in plan.needs:
        uniform = noise.uniforms(models.seed, f"noise/{stream}", step, number, batch.steps)
        batch.add("noise", put(uniform.to(torch.float32), device))
    if "response_tokens" in plan.needs:
        batch.add(
            "response_tokens", mdp.decode_tokens(models.tokenizer, batch, models.policy.eos_ids)
        )
    batch.update(mdp.score(plan, batch))
    return batch
