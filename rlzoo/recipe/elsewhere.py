"""What other trainers and papers call rlzoo's keys and components.

`KEY` or `KEY=VALUE` here -> the words of verl, TRL, OpenRLHF, prime-rl, NeMo-RL, SkyRL, slime,
AReaL and of papers, in lower case with underscores. Read by the errors of an unknown key or
component, `rlzoo help keys WORD` and `rlzoo plugins WORD`.
"""

import re

ELSEWHERE: dict[str, tuple[str, ...]] = {
    "rollout.samples": (
        "n", "num_generations", "n_samples_per_prompt", "group_size", "num_samples",
        "num_generations_per_prompt", "rollouts_per_example",
    ),
    "rollout.prompts": (
        "batch_size", "train_batch_size", "per_device_train_batch_size", "rollout_batch_size",
        "num_prompts_per_step",
    ),
    "rollout.max_new_tokens": (
        "max_completion_length", "max_response_length", "response_length", "generate_max_len",
        "max_generate_length", "rollout_max_response_len",
    ),
    "rollout.staleness": (
        "max_staleness", "max_head_offpolicyness", "async_level", "max_steps_off_policy",
    ),
    "rollout.old_log_probs=sampled": (
        "bypass", "bypass_mode", "bypass_old_logprob_for_rollout",
    ),
    "rollout.old_log_probs=recomputed": (
        "decoupled_ppo", "use_decoupled_loss", "decoupled_loss", "proximal_log_probs",
    ),
    "correction": (
        "rollout_correction", "rollout_is", "rollout_rs", "off_policy_correction",
        "importance_sampling_correction", "training_inference_mismatch", "mismatch",
        "vllm_importance_sampling_correction", "is_correction_mode", "is_correction_level",
    ),
    "correction=tis": (
        "truncated_importance_sampling", "use_tis", "token_truncate", "sequence_truncate",
        "rollout_is_threshold", "tis_clip", "prefix_is", "ctpo",
    ),
    "correction=icepop": ("lower_upper", "masked_importance_sampling", "token_mask", "use_mis"),
    "correction=rejection": ("geo_rs", "geometric_rejection", "rejection_sampling", "seq_max_k3"),
    "actor.lr": ("learning_rate", "actor_learning_rate"),
    "actor.entropy_coef": ("entropy_coeff", "ent_coef", "entropy_loss_coef"),
    "kl.coef": ("beta", "kl_coef", "init_kl_coef", "kl_loss_coef", "kl_beta"),
    "kl": ("kl_penalty", "kl_estimator", "kl_loss_type"),
    "kl=k3": ("low_var_kl",),
    "kl=k3_unbiased": ("use_bias_correction_kl",),
    "policy_loss.clip_low": (
        "cliprange", "clip_range", "clip_ratio", "clip_eps", "eps_clip", "epsilon",
        "clip_ratio_low",
    ),
    "policy_loss.clip_high": (
        "clip_ratio_high", "epsilon_high", "eps_clip_high", "clip_higher", "eps_clip_higher",
    ),
    "policy_loss": ("loss_type", "loss_mode"),
    "policy_loss=dis": ("double_sided_importance_sampling", "double_sided_is"),
    "policy_loss=gmpo": ("geo_mean",),
    "policy_loss=gspo": ("importance_sampling_level", "sequence_level_importance_ratios"),
    "policy_loss=opsm": ("off_policy_mask_threshold", "off_policy_sequence_masking"),
    "policy_loss=ppo_dual_clip": (
        "vanilla", "two_sided_clip", "clip_ratio_c", "dual_clip", "c_clip",
    ),
    "aggregation": ("loss_agg_mode", "token_level_loss"),
    "whiten": (
        "advantage_normalization", "normalize_advantages", "whiten_advantages", "adv_norm",
        "masked_whiten", "whiten_rewards",
    ),
    "estimator": ("adv_estimator", "advantage_estimator", "algorithm"),
    "estimator=dr_grpo": (
        "scale_rewards", "norm_adv_by_std_in_grpo", "normalize_rewards", "grpo_done_right",
    ),
    "estimator=gae": ("skip_observation_gae",),
    "estimator=gae_decoupled": ("gae_lambda_policy", "decoupled_gae"),
    "estimator=gae_length_adaptive": ("length_adaptive_alpha", "length_adaptive_gae"),
    "estimator=otb": ("optimal_token_baseline", "tir_optimal_token_baseline"),
    "estimator=passk_max": ("grpo_passk",),
    "estimator.gamma": ("gamma", "discount"),
    "estimator.lam": ("lam", "lambd", "gae_lambda"),
    "sampler=dynamic": ("filter_groups", "dynamic_sampling", "use_dynamic_sampling"),
    "critic.freeze": ("freeze_critic", "frozen_attention"),
    "train.steps": (
        "max_steps", "total_training_steps", "num_steps", "total_steps", "total_epochs",
        "num_rollout", "max_num_steps",
    ),
    "train.epochs": (
        "ppo_epochs", "num_ppo_epochs", "num_iterations", "update_epochs", "max_epochs",
        "num_train_epochs",
    ),
    "train.minibatches": (
        "ppo_mini_batch_size", "num_mini_batches", "mini_batch_size", "num_minibatches",
    ),
    "train.microbatch": (
        "micro_batch_size", "ppo_micro_batch_size", "ppo_micro_batch_size_per_gpu",
    ),
    "train.critic_warmup": (
        "policy_training_start_step", "value_warmup", "critic_freezing_steps",
        "freezing_actor_steps",
    ),
    "eval.every": ("test_freq", "eval_steps", "eval_freq", "eval_interval"),
    "eval.samples": ("val_kwargs.n", "val_batch_size", "val_kwargs"),
    "checkpoint.every": ("save_freq", "save_steps", "save_interval"),
    "loggers": ("report_to", "logger", "use_wandb"),
    "rewards": ("reward_funcs", "reward_fn", "reward_function"),
    "run.dir": ("output_dir", "save_path", "default_local_dir", "ckpt_path"),
    "model.path": ("pretrain", "model_name_or_path", "pretrained"),
    "model.chat_args": ("enable_thinking", "chat_template_kwargs"),
    "model.lora.rank": ("lora_r", "lora_rank", "r"),
    "model.lora.alpha": ("lora_alpha",),
    "model.lora.targets": ("target_modules", "lora_target_modules"),
    "task": ("dataset", "dataset_name", "train_files", "prompt_data"),
}  # fmt: skip
MEANT = {word: here for here, words in ELSEWHERE.items() for word in words}


def meant(text: str) -> str:
    """rlzoo's KEY or KEY=VALUE for a word, or a path of words, of elsewhere; empty if not known."""
    word = re.sub(r"[\s-]+", "_", text.strip().lower())
    paths = [word.split(".", i)[-1] for i in range(word.count(".") + 1)]
    paths += word.split(".")[-2:-1]  # filter_groups.enable
    return next((MEANT[path] for path in paths if path in MEANT), "")
