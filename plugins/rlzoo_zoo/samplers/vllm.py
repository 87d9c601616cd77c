"""Sampling by a vLLM engine that is handed the policy's weights. Untested: no vLLM could be run."""

import os
import weakref
from importlib.util import find_spec
from typing import Annotated, Literal

import torch

from rlzoo import Range, RlzooError, hookimpl

ENGINES: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()  # model -> its engine


def vllm(
    policy,
    prompt_ids,
    prompt_mask,
    uniforms,
    *,
    memory: Annotated[float, Range(0, 1, closed="right")] = 0.3,
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto",
    max_length: Annotated[int | None, Range(1)] = None,
):
    """Responses to prompts (B, P) of at most T tokens, by vLLM in this process, on one GPU.

    Untested: no vLLM could be run; its logic is tested with a stand-in for the engine. Each call
    hands the weights over first. What comes back are the tokens and the engine's log-probabilities
    of them, after temperature and truncation: `sampler_log_probs` (B, T'). They differ from the
    policy's own by kernels and rounding, so `old_log_probs` are computed by the policy, and
    correction=tis, icepop or rejection weighs the difference. The noise is the engine's, not
    `uniforms` (B, T): a row's seed comes from its first uniform, but the same tokens with other
    batches or engines are not promised. memory: the share of the GPU that the engine takes;
    max_length: of prompt and response, null: the model's. Breaks with LoRA (refused).
    Source: Kwon et al. 2023 (vLLM), arXiv:2309.06180.
    """
    from vllm import SamplingParams

    engine = ready(policy, memory, dtype, max_length)
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(prompt_ids, prompt_mask, strict=True)]
    limit = uniforms.shape[1]
    asked = [
        SamplingParams(
            temperature=policy.temperature,
            top_k=policy.top_k or -1,
            top_p=policy.top_p,
            max_tokens=limit,
            stop_token_ids=policy.eos_ids,
            stop=list(policy.stops) or None,
            logprobs=0,  # of the sampled token alone
            seed=int(u * 2**31),
        )
        for u in uniforms[:, 0].tolist()
    ]
    outputs = engine.generate([{"prompt_token_ids": r} for r in rows], asked, use_tqdm=False)
    found = [output.outputs[0] for output in outputs]  # in the order of the prompts
    width = max(len(one.token_ids) for one in found)
    ids = torch.full((len(rows), width), policy.pad_id, device=prompt_ids.device)
    log_probs = torch.zeros(len(rows), width, device=prompt_ids.device)
    for i, one in enumerate(found):
        said = [at[token].logprob for token, at in zip(one.token_ids, one.logprobs, strict=True)]
        ids[i, : len(said)] = torch.tensor(list(one.token_ids))
        log_probs[i, : len(said)] = torch.tensor(said)
    return {"response_ids": ids, "sampler_log_probs": log_probs}


def ready(policy, memory, dtype, max_length):
    """The engine of this policy, made at the first call, with the weights of now."""
    model = policy.model
    if getattr(model, "_hf_peft_config_loaded", False):
        raise RlzooError("sampler vllm: LoRA adapters cannot be handed over; use transformers")
    if model not in ENGINES:
        ENGINES[model] = start(model.name_or_path, memory, dtype, max_length)
    engine = ENGINES[model]
    # At each call: a fused optimizer changes weights without a trace in their versions.
    weights = [(name, p.detach()) for name, p in model.named_parameters()]
    engine.apply_model(lambda theirs: theirs.load_weights(weights))
    engine.reset_prefix_cache()  # it holds keys and values of the weights before
    return engine


def start(path, memory, dtype, max_length):
    """A vLLM engine in this process: in one of its own the weights would have to be copied."""
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    from vllm import LLM

    return LLM(
        model=path,
        dtype=dtype,
        gpu_memory_utilization=memory,
        max_model_len=max_length,
        logprobs_mode="processed_logprobs",  # those of what is sampled from
    )


def installed(**options):
    if find_spec("vllm") is None:
        raise RlzooError("needs vLLM: pip install 'rlzoo-llm[vllm]'")


@hookimpl
def register_samplers(register):
    register(vllm, check=installed)
