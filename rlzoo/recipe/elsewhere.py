"""The names that verl, TRL and OpenRLHF give the keys."""

_SAID = """
rollout.samples: n num_generations n_samples_per_prompt group_size num_samples
rollout.prompts: batch_size train_batch_size per_device_train_batch_size rollout_batch_size
rollout.max_new_tokens: max_completion_length max_response_length response_length generate_max_len
actor.lr: learning_rate actor_learning_rate
actor.entropy_coef: entropy_coeff ent_coef entropy_loss_coef
kl.coef: beta kl_coef init_kl_coef kl_loss_coef kl_beta
kl: kl_penalty kl_estimator kl_loss_type
policy_loss.clip_low: cliprange clip_range clip_ratio clip_eps eps_clip epsilon clip_ratio_low
policy_loss.clip_high: clip_ratio_high epsilon_high eps_clip_high
policy_loss: loss_type loss_mode
aggregation: loss_agg_mode
estimator: adv_estimator advantage_estimator algorithm
estimator.gamma: gamma discount
estimator.lam: lam lambd gae_lambda
train.steps: max_steps total_training_steps num_steps total_steps
train.epochs: ppo_epochs num_ppo_epochs num_iterations update_epochs max_epochs num_train_epochs
train.minibatches: ppo_mini_batch_size num_mini_batches mini_batch_size num_minibatches
train.microbatch: micro_batch_size ppo_micro_batch_size ppo_micro_batch_size_per_gpu
eval.every: test_freq eval_steps eval_freq eval_interval
checkpoint.every: save_freq save_steps save_interval
loggers: report_to logger use_wandb
rewards: reward_funcs reward_fn reward_function
run.dir: output_dir save_path default_local_dir ckpt_path
model.path: pretrain model_name_or_path pretrained
model.lora.rank: lora_r lora_rank r
model.lora.alpha: lora_alpha
model.lora.targets: target_modules lora_target_modules
task: dataset dataset_name train_files prompt_data
"""

_ROWS = (line.split(": ") for line in _SAID.strip().splitlines())
MEANT = {word: key for key, words in _ROWS for word in words.split()}
