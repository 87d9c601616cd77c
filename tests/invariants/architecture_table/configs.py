"""Tiny configurations of transformers' architectures, as data: name -> what differs from `TINY`.

Rows of the checks have up to 30 tokens: windows, chunks, and what a model was trained on before its
positions were stretched are shorter than that, so that they matter. A name with a dash is mostly a
variant of an architecture; `model_type` is what transformers calls it, by default the name.
"""

from typing import Any

from helpers.architectures import COMMON, CONFIGS, SPECIAL

TINY = COMMON | SPECIAL
ABSENT = object()  # for a key of TINY that an architecture cannot take
EOS = [1, 20, 40, 60, 80]  # so many that rows end at different times

EXPERTS = {
    "num_experts": 4,
    "num_local_experts": 4,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
LATENT = {
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_nope_head_dim": 4,
    "qk_rope_head_dim": 4,
    "v_head_dim": 4,
    "num_key_value_heads": 4,
    "head_dim": 4,
}
OLD = {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 64, "rotary_dim": 4}
MAMBA = {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, "time_step_rank": 2}
MAMBA2 = MAMBA | {"num_heads": 4, "head_dim": 8, "n_groups": 1, "chunk_size": 4, "expand": 2}
HYBRID = {
    "mamba_n_heads": 4,
    "mamba_d_head": 8,
    "mamba_d_state": 4,
    "mamba_n_groups": 1,
    "mamba_chunk_size": 4,
    "mamba_expand": 2,
}
LINEAR = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
    "linear_conv_kernel_dim": 3,
}
MIXED = {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 6}


def rope(kind: str, **more: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 10000.0, **more}}


# Where rounding alone would show: a change of weights by 1e-7 moves log-probs by 3e-4 otherwise.
CALM = {"initializer_range": 0.2}
QWEN35 = LINEAR | CALM | {"layer_types": ["linear_attention", "full_attention"]}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}

# Those of the other invariants are as they are there; the rest differ from TINY by what is named.
ARCHITECTURES: dict[str, dict[str, Any] | None] = {
    **dict.fromkeys(CONFIGS),
    # ---- learned positions, alibi, and other early ones
    "gpt2-scaled_by_layer": {
        "model_type": "gpt2",
        "scale_attn_by_inverse_layer_idx": True,
        **OLD,
    },
    "gpt_neo": {
        "num_layers": 2,
        "num_heads": 4,
        "attention_types": [[["global", "local"], 1]],
        "window_size": 6,
    },
    "gpt_neox": {"use_parallel_residual": True},
    "gpt_neox_japanese": {},
    "gptj": OLD,
    "codegen": OLD | {"n_head": 4},
    "gpt_bigcode": OLD,
    "openai-gpt": OLD,
    "ctrl": OLD | {"dff": 24},
    "opt": {"ffn_dim": 24},
    "opt-projected": {"model_type": "opt", "ffn_dim": 24, "word_embed_proj_dim": 8},
    "bloom": {"n_layer": 2, "n_head": 4},
    "falcon": {"multi_query": True, "parallel_attn": True, "head_dim": ABSENT},
    "falcon-alibi": {
        "model_type": "falcon",
        "alibi": True,
        "multi_query": False,
        "head_dim": ABSENT,
    },
    "falcon-new": {
        "model_type": "falcon",
        "new_decoder_architecture": True,
        "num_kv_heads": 2,
        "head_dim": ABSENT,
    },
    "mpt": {"d_model": 16, "n_layers": 2, "n_heads": 4, "max_seq_len": 64, "expansion_ratio": 2},
    "biogpt": {},
    "xglm": {"d_model": 16, "num_layers": 2, "attention_heads": 4, "ffn_dim": 24},
    "bart": {
        "d_model": 16,
        "decoder_layers": 2,
        "decoder_attention_heads": 4,
        "decoder_ffn_dim": 24,
        "is_decoder": True,
    },
    # ---- Llama and its kin
    "llama-tied": {"model_type": "llama", "tie_word_embeddings": True},
    "llama-llama3_rope": {
        "model_type": "llama",
        **rope(
            "llama3",
            factor=4.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=12,
        ),
    },
    "llama-yarn": {
        "model_type": "llama",
        **rope("yarn", factor=4.0, original_max_position_embeddings=12),
    },
    "llama-linear_rope": {"model_type": "llama", **rope("linear", factor=2.0)},
    "llama-dynamic_rope": {
        "model_type": "llama",
        "max_position_embeddings": 12,
        **rope("dynamic", factor=4.0),
    },
    "mistral-full": {"model_type": "mistral", "sliding_window": None},
    "ministral": MIXED,
    "ministral3": {},
    "qwen2-full": {"model_type": "qwen2"},
    "qwen3": {},
    "smollm3": {"no_rope_layers": [1, 0], "no_rope_layer_interval": 2},
    "olmo": {"clip_qkv": 2.0},
    "olmo2": {},
    "olmo3": MIXED,
    "stablelm": {"use_qkv_bias": True, "partial_rotary_factor": 0.5},
    "starcoder2": {"sliding_window": 6},
    "persimmon": {"partial_rotary_factor": 0.5},
    "phi": {"partial_rotary_factor": 0.5},
    "phi3": {"sliding_window": None},
    "phi3-longrope": {
        "model_type": "phi3",
        "sliding_window": None,
        "original_max_position_embeddings": 12,
        **rope(
            "longrope",
            short_factor=[1.0, 1.1],
            long_factor=[3.0, 7.0],
            original_max_position_embeddings=12,
        ),
    },
    "nemotron": {"partial_rotary_factor": 0.5},
    "glm": {"partial_rotary_factor": 0.5},
    "glm4": {"partial_rotary_factor": 0.5},
    "exaone4": MIXED,
    "ernie4_5": {},
    "helium": {},
    "seed_oss": {},
    "hunyuan_v1_dense": {},
    "apertus": {},
    "arcee": {},
    "bitnet": {},
    "cohere": {"logit_scale": 0.5},
    "cohere2": {"logit_scale": 0.5, **MIXED},
    "cwm": MIXED | {"bos_token_id": 2},
    "diffllama": {},
    "granite": {"logits_scaling": 2.0, "attention_multiplier": 0.4, "residual_multiplier": 0.6},
    "minicpm3": LATENT | {"scale_emb": 2, "dim_model_base": 16},
    "modernbert-decoder": {
        "global_attn_every_n_layers": 2,
        "local_attention": 12,
        "bos_token_id": 2,
        "cls_token_id": 2,
        "sep_token_id": 1,
    },
    "nanochat": {"final_logit_softcapping": 4.0},
    "vaultgemma": MIXED | {"final_logit_softcapping": 4.0},
    "youtu": LATENT,
    "gemma3n_text": {
        "hidden_size_per_layer_input": 4,
        "vocab_size_per_layer_input": 99,
        "laurel_rank": 4,
        "altup_num_inputs": 2,
        "num_kv_shared_layers": 0,
        "activation_sparsity_pattern": [0.0, 0.0],
        "intermediate_size": [24, 24],
        "final_logit_softcapping": 4.0,
        **MIXED,
    },
    "gemma4_text": {
        "hidden_size_per_layer_input": 4,
        "vocab_size_per_layer_input": 99,
        "num_kv_shared_layers": 0,
        "global_head_dim": 4,
        "final_logit_softcapping": 4.0,
        **MIXED,
    },
    # ---- mixtures of experts
    "mixtral": EXPERTS,
    "mixtral-router_logits": {"model_type": "mixtral", "output_router_logits": True, **EXPERTS},
    "mixtral-jitter": {"model_type": "mixtral", "router_jitter_noise": 0.1, **EXPERTS},
    "phimoe": EXPERTS | {"sliding_window": None, "router_jitter_noise": 0.1},
    "qwen2_moe": EXPERTS,
    "qwen3_moe": EXPERTS,
    "olmoe": EXPERTS,
    "flex_olmo": EXPERTS,
    "gpt_oss": EXPERTS | MIXED,
    "granitemoe": EXPERTS | {"logits_scaling": 2.0},
    "jetmoe": EXPERTS | {"kv_channels": 4, "num_key_value_heads": 2, "num_attention_heads": 4},
    "dbrx": {
        "d_model": 16,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": 64,
        "ffn_config": {
            "ffn_hidden_size": 16,
            "moe_num_experts": 4,
            "moe_top_k": 2,
            "hidden_size": 16,
        },
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10000.0, "clip_qkv": 4.0},
        **rope("default"),
    },
    "ernie4_5_moe": EXPERTS | {"moe_num_experts": 4, "moe_k": 2, "moe_layer_start_index": 1},
    "glm4_moe": EXPERTS | {"first_k_dense_replace": 1, "partial_rotary_factor": 0.5},
    "deepseek_v2": EXPERTS | LATENT | {"first_k_dense_replace": 1},
    "deepseek_v3": EXPERTS | LATENT | {"first_k_dense_replace": 1, "n_group": 2, "topk_group": 1},
    "deepseek_v32": EXPERTS
    | LATENT
    | {
        "first_k_dense_replace": 1,
        "n_group": 2,
        "topk_group": 1,
        "index_topk": 6,
        "index_n_heads": 2,
        "index_head_dim": 8,
    },
    "dots1": EXPERTS
    | {
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "n_shared_experts": 1,
    },
    "longcat_flash": EXPERTS
    | LATENT
    | {
        "num_layers": 2,
        "ffn_hidden_size": 24,
        "expert_ffn_hidden_size": 16,
        "zero_expert_num": 1,
        "moe_topk": 2,
    },
    "minimax_m2": EXPERTS,
    "doge": EXPERTS | {"keep_window_size": 6, "is_moe": False},
    "llama4_text": EXPERTS
    | {
        "attention_chunk_size": 8,
        "intermediate_size_mlp": 24,
        "no_rope_layers": [1, 0],
        "moe_layers": [1],
        "attn_temperature_tuning": True,
        "floor_scale": 4,
        "layer_types": ["chunked_attention", "full_attention"],
    },
    # ---- recurrent states, alone and beside attention
    "mamba": MAMBA,
    "mamba2": MAMBA2,
    "falcon_mamba": MAMBA,
    "rwkv": {"attention_hidden_size": 16, "context_length": 64},
    "rwkv-rescaled": {
        "model_type": "rwkv",
        "attention_hidden_size": 16,
        "context_length": 64,
        "num_hidden_layers": 4,
        "rescale_every": 2,
    },
    "recurrent_gemma": {
        "lru_width": 16,
        "attention_window_size": 6,
        "block_types": ["recurrent", "attention"],
    },
    "falcon_h1": HYBRID | {"mamba_d_ssm": 32, "lm_head_multiplier": 0.5},
    "jamba": EXPERTS
    | {
        "mamba_d_state": 4,
        "mamba_dt_rank": 2,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
        "expert_layer_period": 2,
        "expert_layer_offset": 1,
        "use_mamba_kernels": False,
    },
    "bamba": HYBRID | {"attn_layer_indices": [1]},
    "granitemoehybrid": HYBRID
    | EXPERTS
    | {
        "layer_types": ["mamba", "attention"],
        "logits_scaling": 2.0,
        "shared_intermediate_size": 16,
    },
    "nemotron_h": {
        "layers_block_type": ["linear_attention", "full_attention", "mlp", "linear_attention"],
        "ssm_state_size": 4,
        "mamba_num_heads": 4,
        "mamba_head_dim": 8,
        "n_groups": 1,
        "chunk_size": 4,
    },
    "zamba2": {
        "mamba_d_state": 4,
        "mamba_ngroups": 1,
        "n_mamba_heads": 4,
        "chunk_size": 4,
        "num_hidden_layers": 3,
        "layers_block_type": ["mamba", "hybrid", "mamba"],
        "num_mem_blocks": 1,
        "use_mem_rope": True,
        "adapter_rank": 4,
    },
    "zaya": EXPERTS | CALM | {"num_experts_per_tok": 1},
    "lfm2": {"num_hidden_layers": 3, "full_attn_idxs": [1]},
    "minimax": EXPERTS | {"layer_types": ["linear_attention", "full_attention"], "block_size": 4},
    "qwen3_next": EXPERTS | QWEN35,
    "qwen3_5_text": QWEN35,
    "olmo_hybrid": QWEN35,
    "kimi_linear": EXPERTS
    | LATENT
    | {
        "layer_types": ["linear_attention", "full_attention"],
        "linear_head_dim": 4,
        "linear_num_heads": 4,
    },
    # ---- the text of models that see
    "gemma3-with_vision": {
        "model_type": "gemma3",
        "text_config": {**TINY, **MIXED, "query_pre_attn_scalar": 4},
        "vision_config": VISION,
        "mm_tokens_per_image": 4,
    },
    "qwen3_5-with_vision": {
        "model_type": "qwen3_5",
        "text_config": {**TINY, **QWEN35},
        "vision_config": {
            "hidden_size": 16,
            "depth": 1,
            "num_heads": 2,
            "intermediate_size": 24,
            "out_hidden_size": 16,
        },
    },
}
# Where transformers' eager attention is not what the model was trained with: it adds alibi twice.
ATTENTION = {"falcon-alibi": "sdpa"}
# The third that runs with all other tests: each kind of positions, attention, cache and fault.
FIRST = (  # one of each kind of attention, position, cache and verdict: in every test run
    *("gpt2", "llama", "gemma2", "falcon-alibi", "phi3-longrope", "llama-dynamic_rope", "bart"),
)
QUICK = (  # a third, before a change lands
    *("gpt2", "llama", "gemma2", "gemma3", "gpt_neo", "openai-gpt", "opt-projected", "bloom"),
    *("falcon-alibi", "mpt", "bart", "llama-tied", "llama-yarn", "llama-dynamic_rope"),
    *("phi3-longrope", "qwen3", "smollm3", "cohere2", "granite", "modernbert-decoder"),
    *("gemma3n_text", "mixtral-router_logits", "phimoe", "gpt_oss", "deepseek_v3"),
    *("deepseek_v32", "doge", "llama4_text", "mamba", "rwkv-rescaled", "recurrent_gemma"),
    *("jamba", "nemotron_h", "zamba2", "lfm2", "minimax", "qwen3_5_text", "gemma3-with_vision"),
)
# What may be refused or noted, in part or whole; all others are right in every cell.
OUTSPOKEN = {
    *("gpt_neox_japanese", "openai-gpt", "ctrl", "jetmoe"),  # no checkpointing
    *("llama-dynamic_rope", "phi3-longrope", "deepseek_v32", "doge"),  # no rows beyond a limit
    # Sampled otherwise than scored:
    *("rwkv", "rwkv-rescaled", "zamba2", "recurrent_gemma", "nemotron_h"),
}


def config_of(name: str) -> Any:
    """The configuration called `name`, a transformers object."""
    from transformers import AutoConfig

    given = ARCHITECTURES[name]
    if given is None:
        config = CONFIGS[name]()
    else:
        given = TINY | {"model_type": name} | given
        given = {key: value for key, value in given.items() if value is not ABSENT}
        config = AutoConfig.for_model(given.pop("model_type"), **given)
    return config
