"""Small random models whose cache, positions or training mode are not what most have."""

import torch
import transformers as hf
from transformers import AutoModelForCausalLM

from helpers.architectures import COMMON, SPECIAL, TOKENIZER

BASE = {**COMMON, **SPECIAL}
PLAIN = {k: v for k, v in BASE.items() if k != "head_dim"}
SSM = {"mamba_n_heads": 4, "mamba_d_head": 8, "mamba_d_state": 8, "mamba_d_conv": 4}
LONG = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": 12}
MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}
ODD = {
    "phi3_longrope": lambda: hf.Phi3Config(
        **PLAIN, original_max_position_embeddings=12,
        rope_parameters={**LONG, "short_factor": [1.0, 1.0], "long_factor": [3.0, 9.0]},
    ),
    "llama_dynamic": lambda: hf.LlamaConfig(
        **{**BASE, "max_position_embeddings": 12},
        rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    ),
    "llama4": lambda: hf.Llama4TextConfig(
        **{**BASE, "num_hidden_layers": 4}, intermediate_size_mlp=24, attention_chunk_size=16,
        num_local_experts=2, num_experts_per_tok=1, moe_layers=[], floor_scale=16,
        attn_temperature_tuning=True,
    ),
    "deepseek_v32": lambda: hf.DeepseekV32Config(
        **{**PLAIN, "num_key_value_heads": 4}, q_lora_rank=8, kv_lora_rank=8, qk_nope_head_dim=4,
        qk_rope_head_dim=4, v_head_dim=4, n_routed_experts=4, num_experts_per_tok=2,
        n_group=2, topk_group=1, moe_intermediate_size=8, index_topk=8, index_n_heads=2,
        index_head_dim=8,
        first_k_dense_replace=1,
    ),
    "doge": lambda: hf.DogeConfig(**PLAIN, keep_window_size=8),
    "jamba": lambda: hf.JambaConfig(
        **PLAIN, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2,
        expert_layer_offset=1, num_experts=2, mamba_d_state=4, use_mamba_kernels=False,
    ),
    "lfm2": lambda: hf.Lfm2Config(**{**PLAIN, "num_hidden_layers": 3}, full_attn_idxs=[1]),
    "falcon_h1": lambda: hf.FalconH1Config(**BASE, **SSM, mamba_d_ssm=32, mamba_n_groups=1),
    "zamba2": lambda: hf.Zamba2Config(
        **{**PLAIN, "num_key_value_heads": 4}, mamba_d_state=8,
        mamba_ngroups=1, n_mamba_heads=4, mamba_headdim=8, use_mem_eff_path=False,
        layers_block_type=["mamba", "hybrid"], num_mem_blocks=1,
        adapter_rank=4,
    ),
    "rwkv": lambda: hf.RwkvConfig(
        **SPECIAL, hidden_size=16, num_hidden_layers=3, attention_hidden_size=16,
        context_length=64, rescale_every=2,
    ),
    "recurrent_gemma": lambda: hf.RecurrentGemmaConfig(
        **BASE, lru_width=16, attention_window_size=32, block_types=["recurrent", "attention"],
    ),
    "nemotron_h": lambda: hf.NemotronHConfig(
        **BASE, layers_block_type=["mamba", "attention"],
        mamba_num_heads=4, mamba_head_dim=8, ssm_state_size=8, n_groups=1, chunk_size=8,
    ),
    "phimoe": lambda: hf.PhimoeConfig(**PLAIN, **MOE, router_jitter_noise=0.1),
    "mixtral": lambda: hf.MixtralConfig(
        **BASE, **MOE, router_jitter_noise=0.1, output_router_logits=True
    ),
    "qwen3_moe": lambda: hf.Qwen3MoeConfig(
        **BASE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=8
    ),
    "falcon_alibi": lambda: hf.FalconConfig(
        **SPECIAL, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, alibi=True,
        new_decoder_architecture=False, hidden_dropout=0.2, attention_dropout=0.2,
        initializer_range=0.4,
    ),
    "persimmon": lambda: hf.PersimmonConfig(
        **{**PLAIN, "num_key_value_heads": 4}, hidden_dropout=0.2, attention_dropout=0.2
    ),
    "gemma3n": lambda: hf.Gemma3nTextConfig(
        **{**BASE, "intermediate_size": [24] * 4, "num_hidden_layers": 4}, sliding_window=6,
        vocab_size_per_layer_input=SPECIAL["vocab_size"], hidden_size_per_layer_input=4,
        laurel_rank=4, num_kv_shared_layers=1, altup_num_inputs=2,
        activation_sparsity_pattern=[0.0] * 4,
        layer_types=["sliding_attention", "full_attention"] * 2, final_logit_softcapping=4.0,
    ),
    "opt_350m": lambda: hf.OPTConfig(
        **SPECIAL, hidden_size=16, word_embed_proj_dim=8, ffn_dim=24, num_hidden_layers=2,
        num_attention_heads=4, max_position_embeddings=64, init_std=0.4, do_layer_norm_before=False,
    ),
    "minimax": lambda: hf.MiniMaxConfig(
        **BASE, **MOE, layer_types=["linear_attention", "full_attention"], block_size=4
    ),
    "mpt": lambda: hf.MptConfig(
        **SPECIAL, d_model=16, n_heads=4, n_layers=2, max_seq_len=24, initializer_range=0.4
    ),
    "mamba": lambda: hf.MambaConfig(
        **SPECIAL, hidden_size=16, num_hidden_layers=2, state_size=4, use_mambapy=False
    ),
    "openai_gpt": lambda: hf.OpenAIGPTConfig(
        **SPECIAL, n_embd=16, n_layer=2, n_head=2, n_positions=64, initializer_range=0.4
    ),
}  # fmt: skip


def save_odd(folder, name, **changes):
    """As `architectures.save_model`, of one of ODD; weights of one dimension are moved, too."""
    config = ODD[name]()
    for key, value in changes.items():
        setattr(config, key, value)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config)
        for weight in model.parameters():
            if weight.ndim == 1 and getattr(config, "initializer_range", 0.4) == 0.4:
                weight.data.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    return folder
