"""Shared by samplers that draw elsewhere: the policy's weights, requests and responses."""

import math

import torch

from rlzoo import RlzooError

OFF_POLICY = {
    "correction": (
        "uses its own kernels and rounding, so samples are slightly off-policy; set "
        "correction=tis (or icepop, rejection) to reweight the loss"
    )
}


def weights(policy):
    """name -> tensor, as the model's own checkpoint has them: adapters merged, tied weights once.

    Weights that are spread over processes reach the sampler whole.
    """
    from transformers.core_model_loading import revert_weight_conversion

    model, found = policy.model, {}
    own = dict(model.named_parameters())
    for path, module in model.named_modules():
        kept = module._buffers.keys() - module._non_persistent_buffers_set
        own |= {f"{path}.{name}": module._buffers[name] for name in kept}
    adapted = [path for path, m in model.named_modules() if hasattr(m, "get_delta_weight")]
    for name, x in own.items():
        layer = next((path for path in adapted if name.startswith(f"{path}.")), None)
        if layer is None:
            found[name] = x.detach()
            continue
        # Experts have an adapter around an adapter, each of another weight.
        around = [model.get_submodule(p) for p in adapted if f"{p}.".startswith(f"{layer}.")]
        inner = name.removeprefix(f"{layer}.").replace("base_layer.", "")
        if inner.startswith("lora_"):
            continue
        plain = f"{layer}.{inner}"
        found[plain] = x.detach()
        for module in around if policy.adapter else ():
            if getattr(module, "parameter_name", "weight") == inner:
                with torch.no_grad():
                    for adapter in module.active_adapters:
                        found[plain] = found[plain] + module.get_delta_weight(adapter).to(x.dtype)
    return revert_weight_conversion(model, found)


def fingerprint(policy):
    """Numbers that another update, or adapters turned off, would change."""
    with torch.no_grad():
        sums = torch.stack([torch.hash_tensor(p.detach()) for p in policy.model.parameters()])
    return (policy.adapter, *sums.tolist())


def asked(policy, prompt_ids, prompt_mask, uniforms):
    """The prompts as lists of ids, and the settings to continue each: in the words that vLLM's
    `SamplingParams` and its server share. A row's seed comes from its first uniform."""
    rows = [ids[mask.bool()].tolist() for ids, mask in zip(prompt_ids, prompt_mask, strict=True)]
    settings = {
        "temperature": policy.temperature,
        "top_k": policy.top_k or -1,
        "top_p": policy.top_p,
        "max_tokens": uniforms.shape[1],
        "min_tokens": policy.min_new_tokens,
        "stop_token_ids": list(policy.eos_ids),
        "ignore_eos": True,  # what ends a response are the policy's own ids, and no others
        "stop": list(policy.stops) or None,
        "skip_special_tokens": False,  # a stop may be one
        "logprobs": 0,  # only the sampled token's
    }
    return rows, [{**settings, "seed": int(u * 2**31)} for u in uniforms[:, 0].tolist()]


def columns(policy, found, uniforms):
    """`response_ids` and `sampler_log_probs` (B, T') of `found`: for each row its tokens, their
    log-probabilities, and whether it was cut for length."""
    limit, device = uniforms.shape[1], uniforms.device
    width = max(len(tokens) for tokens, _, _ in found)
    ids = torch.full((len(found), width), policy.pad_id)
    log_probs = torch.zeros(len(found), width)
    for i, (tokens, said, cut) in enumerate(found):
        if not 0 < len(tokens) <= limit or len(said) != len(tokens):
            raise RlzooError(
                f"response {i} has {len(tokens)} tokens and {len(said)} log-probabilities; "
                f"1 to {limit} of both were requested"
            )
        if cut and len(tokens) < limit:
            raise RlzooError(
                f"response {i} was cut after {len(tokens)} tokens of {limit}: prompt and response "
                "exceed the engine's max_model_len"
            )
        if not all(0 <= token < policy.vocabulary for token in tokens):
            raise RlzooError(f"response {i} has ids beyond the model's {policy.vocabulary}")
        if not all(math.isfinite(x) and x < 1e-3 for x in said):
            raise RlzooError(f"response {i} has a log-probability that is not a number")
        ids[i, : len(tokens)] = torch.tensor(tokens)
        log_probs[i, : len(tokens)] = torch.tensor(said)
    return {"response_ids": ids.to(device), "sampler_log_probs": log_probs.to(device)}
