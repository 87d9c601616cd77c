"""rlzoo's estimators and policy losses in other trainers: verl, SkyRL, slime, TRL,
prime-rl and rLLM.

hosts     what each trainer's data can feed and what not, and why; no trainer is imported
columns   a trainer's tensors by rlzoo's names, those that follow from others made here
calls     one call of an estimator and one of a policy loss, the same for every trainer
verl      registered in verl, by its entry-point group `verl.plugins`
skyrl     registered in SkyRL, and its command line with them
slime     a function for slime's --custom-advantage-function-path
trl       a subclass of TRL's GRPOTrainer
prime_rl  a custom loss for prime-rl
rllm      registered in rLLM
lines     the lines that start a recipe's algorithm in each
command   `rlzoo bridge`
"""
