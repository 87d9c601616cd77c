"""The names of rlzoo's keys in other trainers and papers: the entry point of `rlzoo.words`.

`KEY` or `KEY=VALUE` here -> the words of verl, TRL, OpenRLHF, prime-rl, NeMo-RL, SkyRL, slime,
AReaL and of papers, in lower case with underscores. Their names of a component are in its own
docstring, after `Elsewhere:`.
"""

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
    "task.max_prompt": ("max_prompt_length", "prompt_max_len", "max_prompt_len"),
    "rollout.replay=kept": (
        "sampling_mask", "keep_sampling_mask", "sampler_replay", "sampler_support",
    ),
    "rollout.staleness": (
        "max_staleness", "max_head_offpolicyness", "async_level", "max_steps_off_policy",
        "max_off_policy_steps", "max_trajectory_age_steps", "max_staleness_steps",
    ),
    "rollout.old_log_probs=sampled": (
        "bypass", "bypass_mode", "bypass_old_logprob_for_rollout", "use_rollout_logprobs",
    ),
    "rollout.old_log_probs=recomputed": (
        "decoupled_ppo", "use_decoupled_loss", "decoupled_loss", "proximal_log_probs",
    ),
    "correction": (
        "rollout_correction", "off_policy_correction",
        "importance_sampling_correction", "training_inference_mismatch", "mismatch",
        "vllm_importance_sampling_correction", "is_correction_mode", "is_correction_level",
        "truncated_importance_sampling_type", "tis_ratio_type", "use_tis",
    ),
    "actor.lr": ("learning_rate", "actor_learning_rate"),
    "actor.entropy_coef": ("entropy_coeff", "ent_coef", "entropy_loss_coef"),
    "kl.coef": (
        "beta", "kl_coef", "init_kl_coef", "kl_loss_coef", "kl_beta", "kl_ctl", "kl_tau",
        "reference_policy_kl_penalty", "use_kl_loss",
    ),
    "kl": ("kl_penalty", "kl_estimator", "kl_loss_type", "kl_estimator_type"),
    "policy_loss.clip_low": (
        "cliprange", "clip_range", "clip_ratio", "clip_eps", "eps_clip", "epsilon",
        "clip_ratio_low", "ratio_clip_min", "eps_clip_low",
    ),
    "policy_loss.clip_high": (
        "clip_ratio_high", "epsilon_high", "eps_clip_high", "clip_higher", "eps_clip_higher",
        "ratio_clip_max",
    ),
    "policy_loss": ("loss_type", "loss_mode"),
    "aggregation": ("loss_agg_mode", "token_level_loss"),
    "whiten": (
        "advantage_normalization", "normalize_advantages", "whiten_advantages", "adv_norm",
        "masked_whiten", "whiten_rewards", "advantage_batch_normalize",
    ),
    "estimator": ("adv_estimator", "advantage_estimator", "algorithm"),
    "estimator.gamma": ("gamma", "discount"),
    "estimator.lam": ("lam", "lambd", "gae_lambda"),
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
        "gradient_accumulation_steps",
    ),
    "train.critic_warmup": (
        "policy_training_start_step", "value_warmup", "critic_freezing_steps",
        "freezing_actor_steps",
    ),
    "eval.every": ("test_freq", "eval_steps", "eval_freq", "eval_interval", "val_before_train"),
    "eval.samples": ("val_kwargs.n", "val_batch_size", "val_kwargs"),
    "checkpoint.every": ("save_freq", "save_steps", "save_interval"),
    "loggers": ("report_to", "logger", "use_wandb"),
    "rewards": ("reward_funcs", "reward_fn", "reward_function"),
    "run.dir": ("output_dir", "save_path", "default_local_dir", "ckpt_path"),
    "model.path": ("pretrain", "model_name_or_path", "pretrained"),
    "model.chat_args": ("enable_thinking", "chat_template_kwargs"),
    "model.lora.rank": ("lora_r", "lora_rank", "r", "lora", "use_peft", "use_lora"),
    "model.lora.alpha": ("lora_alpha",),
    "model.lora.targets": ("target_modules", "lora_target_modules"),
    "model.autocast": ("bf16", "fp16", "mixed_precision", "precision"),
    "critic.lr": ("critic.optim.lr", "critic_learning_rate", "value_lr"),
    "sampler=vllm": ("use_vllm", "vllm_mode"),
    "device": ("gpu", "cuda", "use_cpu"),
    "seed": ("seeds", "num_seeds"),
    "task": ("dataset_name", "train_files", "prompt_data"),
}  # fmt: skip
