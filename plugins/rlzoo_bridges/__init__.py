"""rlzoo's estimators and policy losses in other trainers: verl, SkyRL, slime, TRL,
prime-rl and rLLM.

hosts     the columns that each trainer provides, and why others are missing; imports no trainer
columns   a trainer's tensors with rlzoo's names, and columns computed from them
calls     calls of an estimator and of a policy loss, the same for every trainer
verl      registered in verl, by its entry-point group `verl.plugins`
skyrl     registered in SkyRL, with its command line
slime     a function for slime's --custom-advantage-function-path
trl       a subclass of TRL's GRPOTrainer
prime_rl  a custom loss for prime-rl
rllm      registered in rLLM
lines     the lines that start a recipe's algorithm in each trainer
command   `rlzoo show --for TRAINER`
words     their words for rlzoo's keys
"""
