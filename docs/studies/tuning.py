"""A learning rate by successive halving: `python docs/studies/tuning.py [FOLDER]`."""

import sys

import optuna

import rlzoo
from rlzoo_zoo.loggers import for_trial

FOLDER = sys.argv[1] if len(sys.argv) > 1 else "runs/tuning"


def objective(trial):
    lr = trial.suggest_float("actor.lr", 1e-6, 1e-1, log=True)
    words = [f"actor.lr={lr}", "loggers=optuna", f"run.dir={FOLDER}/{trial.number}", "seed=0",
             "train.steps=32", "eval.every=4", "eval.samples=256", "device=cpu"]  # fmt: skip
    with for_trial(trial):  # raises optuna.TrialPruned if the run was pruned
        run = rlzoo.run("grpo", words)
    return run.summary["eval_after"]


study = optuna.create_study(
    direction="maximize",
    sampler=optuna.samplers.RandomSampler(seed=0),
    # Rungs at 4, 8 and 16 steps; at each, the better half continues.
    pruner=optuna.pruners.SuccessiveHalvingPruner(min_resource=4, reduction_factor=2),
)
study.optimize(objective, n_trials=16)

print("| trial | `actor.lr` | steps | held-out score |\n|---|---|---|---|")
for trial in study.trials:
    seen = trial.intermediate_values
    print(
        f"| {trial.number} | {trial.params['actor.lr']:.1e} | {max(seen)} | {seen[max(seen)]:.3f} |"
    )
steps = sum(max(trial.intermediate_values) for trial in study.trials)
print(f"\n{steps} steps of {32 * len(study.trials)}; best {study.best_params}")
