"""Sampling by a vLLM engine in this process, which receives the policy's weights."""

import os
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch

from rlzoo import Range, RlzooError, component
from rlzoo_zoo.packages import needs
from rlzoo_zoo.samplers import elsewhere

Dtype = Literal["auto", "bfloat16", "float16", "float32"]
ENGINES: dict = {}  # (model, settings) -> its engine: one in a process, whatever it samples for


@component("sampler", check=needs("vllm", name="vLLM"), caution=elsewhere.OFF_POLICY)
def vllm(
    policy,
    prompt_ids,
    prompt_mask,
    uniforms,
    *,
    memory: Annotated[float, Range(0, 1, closed="right"), "share of the GPU's memory"] = 0.3,
    dtype: Annotated[Dtype, "auto: that of the policy's weights"] = "auto",
    max_length: Annotated[int | None, Range(1), "maximum tokens; null: the model's limit"] = None,
    eager: Annotated[bool, "skip compilation: faster start, slower generation"] = False,
):
    """Responses to prompts (B, P) of at most T tokens from vLLM in this process.

    The engine receives the weights whenever they have changed, with the names and layout of the
    model's checkpoint and merged adapters. It returns the tokens and their log-probabilities after
    temperature and truncation, `sampler_log_probs` (B, T'). These differ from the policy's because
    of kernels and rounding, so `old_log_probs` are computed by the policy, and correction=tis,
    icepop or rejection accounts for the difference. The engine uses its own noise, not `uniforms`
    (B, T): a row's seed comes from its first uniform number, but other batches or engines may give
    other tokens. It supports one process on one device; for several, use sampler=openai.
    Source: Kwon et al. 2023 (vLLM), arXiv:2309.06180.
    """
    import vllm

    engine = ready(policy, memory, dtype, max_length, eager)
    rows, settings = elsewhere.asked(policy, prompt_ids, prompt_mask, uniforms)
    most = engine.llm.llm_engine.model_config.max_model_len
    if max(map(len, rows)) + uniforms.shape[1] > most:
        raise RlzooError(
            f"sampler vllm: a prompt of {max(map(len, rows))} tokens and {uniforms.shape[1]} new "
            f"tokens exceed the engine's limit of {most}; raise sampler.max_length"
        )
    outputs = engine.llm.generate(
        [{"prompt_token_ids": row} for row in rows],
        [vllm.SamplingParams(**one, detokenize=bool(policy.stops)) for one in settings],
        use_tqdm=False,
    )
    found = []
    for output in outputs:  # in the order of the prompts
        one = output.outputs[0]
        said = [at[token].logprob for token, at in zip(one.token_ids, one.logprobs, strict=True)]
        found.append((list(one.token_ids), said, one.finish_reason == "length"))
    return elsewhere.columns(policy, found, uniforms)


@dataclass
class Engine:
    llm: Any
    weights: Any = None  # the fingerprint of those that it has


def ready(policy, memory, dtype, max_length, eager):
    """The engine of this model, made at the first call, with the current weights."""
    kind = str(policy.model.dtype).removeprefix("torch.") if dtype == "auto" else dtype
    settings = {
        "model": policy.model.name_or_path,
        "dtype": kind,
        "gpu_memory_utilization": memory,
        "max_model_len": max_length,
        "enforce_eager": eager,
    }
    engine = ENGINES.setdefault(tuple(settings.values()), Engine(None))
    engine.llm = engine.llm or start(settings)
    now = elsewhere.fingerprint(policy)
    if engine.weights != now:
        named = list(elsewhere.weights(policy).items())
        engine.weights = None
        engine.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": named})
        engine.llm.apply_model(pack_head)
        engine.llm.reset_prefix_cache()  # it holds keys and values of the weights before
        engine.weights = now
    return engine


def pack_head(model: Any) -> None:
    """On a CPU vLLM keeps a packed copy of the head, which `reload_weights` forgets where the head
    is tied to the embedding (seen in 0.32)."""
    head: Any = getattr(model, "lm_head", None)
    if hasattr(head, "cpu_linear"):
        head.quant_method.process_weights_after_loading(head)


def start(settings):
    """A vLLM engine in this process: in one of its own the weights would have to be copied."""
    if torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        raise RlzooError(
            "sampler vllm: one engine supports only one process; to train one model with several, "
            "use a server (sampler=openai)"
        )
    quiet = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_LOGGING_LEVEL": "ERROR",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # threads of this process are the recipe's affair
    }
    for name, value in quiet.items():
        os.environ.setdefault(name, value)
    import vllm

    try:
        # processed: log-probabilities of what is sampled from
        return vllm.LLM(**settings, logprobs_mode="processed_logprobs", use_tqdm_on_load=False)
    except (ValueError, RuntimeError, OSError) as error:
        if "out of memory" in str(error):
            raise
        raise RlzooError(f"sampler vllm: the engine did not start: {_reason(error)}") from error


def _reason(error):
    """The reason in vLLM's message, on one line: pydantic puts it second."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = next((line for line in lines if "Value error, " in line), (lines or [repr(error)])[0])
    said = said.removeprefix("Value error, ").split(" [type=")[0].split(" Supported arch")[0]
    if "KV cache" in said:
        said += " (sampler.max_length, sampler.memory; on a CPU VLLM_CPU_KVCACHE_SPACE)"
    return said
