"""What files mean: the step, the run and the version of each number, or the option that settles it.

A row of the table is the files of a source, the words of the command, and its figures by rlzoo's
names, {metric: {step: value}}; or the option that the refusal names.
"""

import json
import math

import pytest

import rlzoo
from helpers.made_up_sources import wandb_file
from rlzoo.cli import parser_of
from rlzoo.errors import RlzooError, UsageError
from rlzoo_lab.imports import command as verb

NAN, INF = math.nan, math.inf
R, LR, KL = "reward/mean", "actor/lr", "actor/kl_loss"
PROFILE = "profiling/Time taken: GRPOTrainer._prepare_inputs"
V = "step:{} - critic/score/mean:{} - actor/lr:1e-06"


def trl(*history):
    return json.dumps({"log_history": list(history)})


def jsonl(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def verl(*pairs, form=V):
    return "\n".join(form.format(n, r) for n, r in pairs) + "\n"


def hf(n, r, **more):
    return {"train/global_step": n, "train/reward": r, **more}


def grpo(n, std, part_std, **more):
    return {"step": n, "reward": 0.5, "reward_std": std, "rewards/a/mean": 0.5,
            "rewards/a/std": part_std, **more}  # fmt: skip


TWO = {R: {1: 0.1, 2: 0.2}}
SKY = "Step 1: \n{'policy/policy_lr': '0.0010',\n 'reward/avg_raw_reward': '0.5000'}\n"
WANDB_CSV = "Step,a - critic/score/mean,a - critic/score/mean__MIN,b - critic/score/mean\n"
LONG = "run,step,score\na,1,0.1\na,2,0.2\nb,1,0.8\nb,2,0.9\n"
ROUND = "step:{} - critic/score/mean:{} - actor/lr:0.000 - actor/entropy_loss:1.500\n"
CASES = {
    # Steps
    "timings at step 0": ({"r.wandb": [
        {"train/global_step": 0, "_step": 0, PROFILE: 3.0}, hf(5, 0.1, _step=1),
        {"train/global_step": 5, "_step": 2, PROFILE: 2.0}, hf(10, 0.2, _step=3)]}, "",
        {R: {5: 0.1, 10: 0.2}}),
    "a rate at step 0": ({"a.jsonl": jsonl(
        {"step": 0, "actor/lr": 1e-6, "perf/init": 3}, {"step": 1, "critic/score/mean": 0.1},
        {"step": 2, "critic/score/mean": 0.2})}, "", TWO),
    "a trainer that counts from 0": ({"a.jsonl": jsonl(
        {"step": 0, "critic/score/mean": 0.1}, {"step": 1, "critic/score/mean": 0.2})}, "", TWO),
    "an unknown program that counts from 0": ({"a.csv": "step,reward\n0,0.1\n1,0.2\n"}, "",
                                              {R: {0: 0.1, 1: 0.2}}),
    "an evaluation before step 1 by the tracker's count": ({"r.wandb": [
        {"_step": 0, "val-core/a/reward/mean@1": 0.25},
        {"_step": 1, "training/global_step": 1, "critic/score/mean": 0.1}]}, "",
        {R: {1: 0.1}, "eval/score": {0: 0.25}}),
    "rows of a reward function": ({"r.wandb": [
        row for n in (1, 2) for row in (
            {"_step": 3 * n, "my/format": 0.5 * n}, {"_step": 3 * n + 1, "my/format": 0.5 * n},
            hf(n, n / 10, _step=3 * n + 2))]}, "", TWO | {"trl/my/format": {1: 0.5, 2: 1.0}}),
    "rollout/step and train/step": ({"a.jsonl": jsonl(
        {"rollout/step": 1, "rollout/raw_reward": 0.1}, {"train/step": 1, "train/grad_norm": 2.0},
        {"rollout/step": 2, "rollout/raw_reward": 0.2})}, "",
        TWO | {"actor/grad_norm": {1: 2.0}}),
    "two optimizer steps to a rollout": ({"r.wandb": [
        row for n in (0, 1) for row in (
            {"_step": 3 * n, "rollout/step": n, "rollout/raw_reward": (n + 1) / 10},
            {"_step": 3 * n + 1, "train/step": 2 * n, "train/grad_norm": 1.0},
            {"_step": 3 * n + 2, "train/step": 2 * n + 1, "train/grad_norm": 2.0 + n})]}, "",
        TWO | {"actor/grad_norm": {1: 1.5, 2: 2.0}}),
    "evaluations with a step of their own": ({"r.wandb": [
        hf(1, 0.1, _step=0), {"_step": 1, "eval/global_step": 1, "eval/reward": 0.5},
        hf(2, 0.2, _step=2)]}, "", TWO | {"eval/score": {1: 0.5}}),
    "a step column of another name": ({"a.csv": "stitched,reward\n1,0.1\n2,0.2\n"},
                                      "--step stitched", TWO),
    "no step column": ({"a.csv": "stitched,reward\n1,0.1\n2,0.2\n"}, "", "--step"),
    # Resumed runs
    "a log that was resumed": ({"a.log": verl((1, 0.1), (2, 0.7), (3, 0.8), (2, 0.2), (3, 0.3))},
                               "", {R: {1: 0.1, 2: 0.2, 3: 0.3}}),
    "one id, two offline runs": ({
        "wandb/offline-run-1-x/run-x.wandb": [hf(1, 0.1, _step=0), hf(2, 0.7, _step=1)],
        "wandb/offline-run-2-x/run-x.wandb": [hf(2, 0.2, _step=0)]}, "", TWO),
    "two ids": ({"a/run-x.wandb": [hf(1, 0.1)], "b/run-y.wandb": [hf(1, 0.9)]}, "", "--run"),
    "two ids, chosen": ({"a/run-x.wandb": [hf(1, 0.1), hf(2, 0.2)], "b/run-y.wandb": [hf(1, 0.9)]},
                        "--run run-x", TWO),
    "two logs": ({"a.log": verl((1, 0.1)), "b.log": verl((1, 0.2))}, "", "--run"),
    "two logs, chosen": ({"a.log": verl((1, 0.1), (2, 0.2)), "b.log": verl((1, 0.9))},
                         "--run a.log", TWO),
    "a log of two runs, the first longer": (
        {"a.log": verl((1, 0.8), (2, 0.9), (3, 0.9), (1, 0.1), (2, 0.2))}, "", "--run"),
    "its second run": ({"a.log": verl((1, 0.8), (2, 0.9), (3, 0.9), (1, 0.1), (2, 0.2))},
                       "--run 2", TWO),
    "a log of a run that began again": ({"a.log": verl((1, 0.8), (1, 0.1), (2, 0.2))}, "", TWO),
    "checkpoints of two runs": ({
        "a/checkpoint-1/trainer_state.json": trl({"step": 1, "reward": 0.1}),
        "b/checkpoint-2/trainer_state.json": trl({"step": 1, "reward": 0.9})}, "", "--run"),
    "checkpoints of two runs, chosen": ({
        f"{run}/checkpoint-{n}/trainer_state.json": trl(
            *({"step": i, "reward": r * i} for i in range(1, n + 1)))
        for run, r in (("a", 0.1), ("b", 0.9)) for n in (1, 2)}, "--run a/", TWO),
    "metrics.jsonl of two runs": ({f"{run}/metrics.jsonl": jsonl(
        {"step": 1, "data": {"critic/score/mean": 0.5}}) for run in "ab"}, "", "--run"),
    "metrics.jsonl of a trainer and an orchestrator": ({
        "trainer/metrics.jsonl": jsonl({"step": 1, "optim/lr": 1e-6}),
        "orchestrator/metrics.jsonl": jsonl({"step": 1, "reward/mean": 0.1})}, "",
        {R: {1: 0.1}, LR: {1: 1e-6}}),
    "two logs, joined": ({"1.log": verl((1, 0.1), (2, 0.9)), "2.log": verl((2, 0.2))}, "--run *",
                         TWO),
    # Several runs in a file
    "a chart of two runs": ({"a.csv": WANDB_CSV + "1,.1,.1,.8\n2,.2,.2,.9\n"}, "", "--run"),
    "a chart, chosen": ({"a.csv": WANDB_CSV + "1,.1,.1,.8\n2,.2,.2,.9\n"}, "--run a", TWO),
    "a chart, a name that no run has": ({"a.csv": WANDB_CSV + "1,.1,.1,.8\n"}, "--run c", "--run"),
    "a chart, joined": ({"a.csv": WANDB_CSV + "1,.1,.1,.8\n"}, "--run *", "--run"),
    "a chart with the trainer's step as a curve": ({"a.csv": "Step,a - train/global_step,"
        "a - train/reward\n7,1,0.1\n9,2,0.2\n"}, "", TWO),
    "a long table": ({"a.csv": LONG}, "", "--run"),
    "a long table, chosen": ({"a.csv": LONG}, "--run a --reward score", TWO),
    "a table with a line for each run": (
        {"a.csv": "Name,step,reward\nd12,900,0.1\nd24,800,0.2\n"}, "", "--run"),
    "tasks that only texts tell apart": (
        {"a.csv": "step,task,score\n1,x,.1\n1,y,.8\n2,x,.2\n2,y,.9\n"}, "", "--run"),
    "runs that only a number tells apart": (
        {"a.csv": "lr,step,reward\n1e-6,1,.1\n1e-5,1,.8\n1e-6,2,.2\n1e-5,2,.9\n"}, "", "--run"),
    "runs that only a number tells apart, chosen": (
        {"a.csv": "exp,step,reward\n1,1,.1\n1,2,.2\n2,1,.8\n2,2,.9\n"}, "--run exp=1", TWO),
    "steps that each epoch counts anew": ({"a.jsonl": jsonl(*(
        {"epoch": e, "step": n, "reward": e + n / 10} for e in (0, 1) for n in (0, 1, 2)))}, "",
        "epoch=0"),
    "lines of processes": ({"a.jsonl": jsonl(*(
        {"step": n, "local_rank": k, "reward": n / 10 + k} for n in (1, 2) for k in (0, 1)))}, "",
        "local_rank=0"),
    "lines of samples": ({"a.jsonl": jsonl(*(
        {"step": n, "reward": float(k % 2)} for n in (1, 2) for k in range(4)))}, "", "rewards"),
    "lines that all are at step 0": ({"a.jsonl": jsonl(*(
        {"step": 0, "reward": n / 10} for n in (1, 2, 3)))}, "", "1 of 1 steps"),
    "a resumed table whose rate was changed": ({"a.csv": "step,lr,reward\n1,1,.1\n2,1,.7\n3,1,.8\n"
        "2,2,.2\n3,2,.3\n"}, "", {R: {1: 0.1, 2: 0.2, 3: 0.3}}),
    "a resumed table with few values": ({"a.csv": "step,cut,reward\n1,0,.1\n2,0,.7\n3,1,.8\n"
        "2,1,.2\n3,0,.3\n4,1,.4\n"}, "", {R: {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}}),
    "an evaluation at the end by its phase": ({"a.jsonl": jsonl(
        *({"phase": "train", "step": n, "reward": n / 10} for n in (1, 2, 3)),
        {"phase": "eval", "step": 3, "reward": 0.9})}, "--run train", {
            R: {1: 0.1, 2: 0.2, 3: 0.3}}),
    "train and test lines of one run": (
        {"a.csv": "step,part,reward,eval/x\n1,train,.1,\n1,test,,.5\n2,train,.2,\n2,test,,.6\n"},
        "", TWO),
    "a metric for each line": ({"a.csv": "step,metric,value\n1,reward,0.1\n2,reward,0.2\n"}, "",
                               TWO),
    "a log of two processes that disagree": ({"a.log": "".join(
        f"(W pid={p}) {V.format(n, n / p)}\n" for n in (1, 2) for p in (10, 11))}, "", "--run"),
    "a log of two processes that agree": ({"a.log": "".join(
        f"(W pid={p}) {V.format(n, n / 10)}\n" for n in (1, 2) for p in (10, 11))}, "", TWO),
    "ranks in one file": ({"a.jsonl": jsonl(*(
        {"step": n, "rank": k, "critic/score/mean": n / (10 + k)}
        for n in (1, 2) for k in (0, 1)))}, "--run 0", TWO),
    "a metric for each line of JSON": ({"a.jsonl": jsonl(*(
        {"step": n, "tag": "reward", "value": n / 10} for n in (1, 2)))}, "", TWO),
    "metrics within a mapping": ({"a.jsonl": jsonl(
        {"step": 1, "train": {"reward": 0.1}, "t": {"_type": "table", "n": 1}},
        {"step": 2, "train": {"reward": 0.2}})}, "", TWO | {"csv/t/n": {}}),
    # Numbers
    "NaN as text": ({"a.jsonl": jsonl(
        {"step": 1, "critic/score/mean": "NaN", "actor/grad_norm": "-Infinity"})}, "",
        {R: {1: NAN}, "actor/grad_norm": {1: -INF}}),
    "numbers as text": ({"a.jsonl": jsonl(
        {"step": 1, "reward": "0.1", "note": "x"}, {"step": 2, "reward": "2e-1"})}, "", TWO),
    "null where a run diverged": ({"a.jsonl": jsonl(*(
        {"step": n, "critic/score/mean": x} for n, x in ((1, 0.1), (2, 0.2), (3, None))))}, "",
        {R: {1: 0.1, 2: 0.2, 3: NAN}}),
    "null in the gaps of a table": ({"a.jsonl": jsonl(*(
        {"step": n, "critic/score/mean": n / 10, "actor/grad_norm": None if n % 3 else 1.0}
        for n in range(1, 10)))}, "", {"actor/grad_norm": {3: 1.0, 6: 1.0, 9: 1.0}}),
    "null in the lines of evaluations": ({"a.jsonl": jsonl(*(
        {"step": n, "val-core/a/reward/mean@1": 0.5 if n in (1, 15) else None}
        | dict.fromkeys(("critic/score/mean", LR, KL), None if n == 15 else 1.0)
        for n in range(1, 31)))}, "", {"eval/score": {1: 0.5, 15: 0.5}, LR: {
            n: 1.0 for n in range(1, 31) if n != 15}}),
    "null in one line": ({"a.jsonl": jsonl(*(
        {"step": n, "critic/score/mean": n, "actor/lr": 1e-6, "actor/grad_norm": None if n == 3
         else 1.0} for n in range(1, 31)))}, "", {"actor/grad_norm": {
             n: NAN if n == 3 else 1.0 for n in range(1, 31)}}),
    "NaN in the gaps of a table": ({"a.csv": "step,reward,eval/x,norm\n1,.1,nan,1\n2,.2,.5,nan\n"
        "3,nan,nan,2\n4,nan,nan,3\n5,nan,.6,4\n6,nan,nan,5\n"}, "--eval x", {
            R: {1: 0.1, 2: 0.2, 3: NAN, 4: NAN, 5: NAN, 6: NAN}, "eval/score": {2: 0.5, 5: 0.6},
            "csv/norm": {1: 1, 2: NAN, 3: 2, 4: 3, 5: 4, 6: 5}}),
    "NaN of wandb": ({"r.wandb": [hf(1, 0.1), hf(2, NAN)]}, "", {R: {1: 0.1, 2: NAN}}),
    "tabs": ({"a.tsv": "step\treward\n1\t0.1\n2\t0.2\n"}, "", TWO),
    "semicolons and decimal commas": ({"a.csv": "step;reward\n1;0,1\n2;0,2\n"}, "", TWO),
    "tabs in a .csv, a mark in front": ({"a.csv": "\ufeffstep\treward\n1\t0.1\n2\t0.2\n"}, "", TWO),
    "decimal commas and thousands": ({"a.csv": "step;reward;length;tokens;day\n"
        "1;0,1;1.234,5;1.234;01.02.2025\n2;0,2;1.300,25;12.345;02.02.2025\n"}, "", TWO | {
            "csv/length": {1: 1234.5, 2: 1300.25}, "csv/tokens": {1: 1234, 2: 12345}}),
    "three decimals, or thousands": ({"a.tsv": "step\treward\ttokens\tloss\n"
        "1\t0.1\t1,234\t1.500\n2\t0.2\t1,300\t1.400\n"}, "", TWO | {
            "csv/tokens": {}, "csv/loss": {1: 1.5, 2: 1.4}}),
    "only percentages": ({"a.csv": "step,reward\n1,10%\n2,20%\n"}, "", "'10%' as 'reward'"),
    "UTF-16": ({"a.csv": "step,reward\n1,0.1\n".encode("utf-16")}, "", "not UTF-16"),
    "a metric for each line, as Comet and Aim name it": ({"a.csv": "metricName,metricValue,step\n"
        "reward,0.1,1\nreward,0.2,2\nloss,0.5,1\n"}, "", TWO | {"csv/loss": {1: 0.5}}),
    "the index of a data frame": ({"a.csv": ",step,reward\n0,1,0.1\n1,2,0.2\n"}, "", TWO),
    # What is around the lines of a log
    "a glued bar": ({"a.log": "".join(
        f" {n}/3 [00:01<00:02, 62.5s/it]{V.format(n, n / 10)}" + "\n" * (n == 2)
        if n == 2 else f"33%|# | 1/3{V.format(1, 0.1)}Training:  67%|##| 2/3\r\n"
        for n in (1, 2))}, "", TWO | {LR: {1: 1e-6, 2: 1e-6}}),
    "colours without their escape, tensors": ({"a.log": "".join(
        f"[36m(W pid=7, ip=10.0.0.1)[0m step:{n} - actor/lr:1e-06 - critic/score/mean:np.float64("
        f"{n / 10})[32m [repeated 2x across cluster][0m\n" for n in (1, 2))}, "", TWO),
    "slime, tensors": ({"a.log": "rollout 0: {'rollout/raw_reward': tensor(0.1, device='cuda:0')}"},
                       "", {R: {1: 0.1}}),
    "colours and Ray around a line": ({"a.log": "".join(
        f"\x1b[36m(main_task pid=7)\x1b[0m {V.format(n, n / 10)}\x1b[32m [repeated 2x across "
        "cluster] (Ray deduplicates logs)\x1b[0m\n" for n in (1, 2))}, "",
        TWO | {LR: {1: 1e-6, 2: 1e-6}}),
    "a long beginning": ({"a.log": "loading shard\n" * 10_050 + verl((1, 0.1), (2, 0.2))}, "", TWO),
    "a byte that is not UTF-8": ({"a.log": b"caf\xe9\n" + verl((1, 0.1), (2, 0.2)).encode()}, "",
                                 TWO),
    "slime, over several lines": ({"a.log": "".join(
        f"(R pid=3) x.py:1 - rollout {n}: {{'rollout/raw_reward': {(n + 1) / 10},\n"
        "(Q pid=4) noise\n(R pid=3)  'rollout/values': nan}50%|##|\n" for n in (0, 1))}, "",
        TWO | {"values/mean": {1: NAN, 2: NAN}}),
    "steps of a program that is not slime": ({"a.log": "".join(
        f"step {n}: {{'train/reward': {n / 10}, 'train/loss': 0.5}}\n" for n in (1, 2))}, "",
        "expected metrics"),
    "steps of a program that is not SkyRL": ({"a.log": "".join(
        f"Step {n}: {{'reward': {n / 10}, 'lr': 0.0}}\n" for n in (1, 2))}, "",
        "expected metrics"),
    "SkyRL behind srun": ({"a.log": "".join(f"0: {li}\n" for li in SKY.splitlines())}, "",
                          {R: {1: 0.5}, LR: {1: 0.001}}),
    # Versions
    "TRL 0.14": ({"trainer_state.json": trl(
        {"step": 1, "reward": 0.1, "completion_length": 9.0, "rewards/a": 0.1, "clip_ratio": 0.2})},
        "", {"response_length/mean": {1: 9.0}, "score/a": {1: 0.1}, "actor/pg_clipfrac": {1: 0.2}}),
    "TRL 0.20's reward_std": ({"trainer_state.json": trl(grpo(1, 0.0, 0.53), grpo(2, 0.1, 0.5))},
                              "", {"score/std": {1: 0.53, 2: 0.5},
                                   "trl/reward_std": {1: 0.0, 2: 0.1}}),
    "TRL 0.28's reward_std": ({"trainer_state.json": trl(grpo(1, 0.5, 0.5), grpo(2, 0.4, 0.4))},
                              "", {"score/std": {1: 0.5, 2: 0.4}, "trl/reward_std": {}}),
    "several rewards": ({"trainer_state.json": trl(
        grpo(1, 0.5, 0.5, **{"rewards/b/mean": 0.0, "rewards/b/std": 0.0}))}, "",
        {"score/std": {}, "trl/reward_std": {1: 0.5}}),
    "DPO": ({"trainer_state.json": trl({"step": 1, "loss": 0.7, "rewards/chosen": 0.1,
                                        "rewards/margins": 0.2})}, "",
            {"score/chosen": {}, "trl/rewards/chosen": {1: 0.1}}),
    "KTO": ({"trainer_state.json": trl({"step": 1, "rewards/rejected": 0.1, "kl": 9.0})},
            "", {"actor/ref_kl": {}, KL: {}, "trl/kl": {1: 9.0}}),
    "verl 0.4": ({"a.log": "".join(ROUND.format(n, x) for n, x in ((1, "0.100"), (2, "0.000")))},
                 "", {R: {1: 0.1, 2: 0.0}, LR: {}, "actor/entropy": {1: 1.5, 2: 1.5}}),
    "verl 0.5": ({"a.log": "step:1 - critic/score/mean:0.125 - actor/lr:0.0\n"}, "",
                 {LR: {1: 0.0}}),
    # Whose it is
    "a name that many have": ({"a.csv": "step,kl,entropy,reward\n1,1,2,.1\n2,1,2,.2\n"}, "",
                              TWO | {KL: {}, "csv/kl": {1: 1, 2: 1}}),
    "names of transformers": ({"a.jsonl": jsonl(
        {"step": 1, "train/reward": 0.1, "train/epoch": 0.5, "train/learning_rate": 1e-6})}, "",
        {R: {1: 0.1}, LR: {1: 1e-6}}),
    "a list of any program": ({"a.json": json.dumps(
        [{"step": 0, "reward": 0.1, "kl": 1}, {"step": 1, "reward": 0.2, "kl": 1}])}, "",
        {R: {0: 0.1, 1: 0.2}, "csv/kl": {0: 1, 1: 1}}),
    "a loss in place of a score": (
        {"trainer_state.json": trl({"step": 1, "loss": 0.7}, {"step": 1, "eval_loss": 0.5})},
        "--eval loss", "--eval"),
    "an accuracy": ({"a.csv": "step,eval/accuracy\n1,0.5\n"}, "--eval accuracy",
                    {"eval/score": {1: 0.5}, "eval/slime/accuracy": {}}),
    "OpenRLHF, whose steps are named as TRL's": ({"r.wandb": [
        hf(n, n / 10, **{"train/kl": 0.5, "train/return": 0.1, "train/actor_lr": 1e-6})
        for n in (1, 2)]}, "", TWO | {"actor/ref_kl": {1: 0.5, 2: 0.5}, KL: {}, LR: {
            1: 1e-6, 2: 1e-6}}),
    "trlX, of which one name is rlzoo's": ({"r.wandb": [
        {"_step": n, "reward/mean": n / 10, "policy/sqrt_kl": 0.1} for n in (0, 1)]}, "",
        {R: {0: 0.0, 1: 0.1}, "csv/policy/sqrt_kl": {0: 0.1, 1: 0.1}}),
    "LLaMA-Factory's log": ({"trainer_log.jsonl": jsonl(*(
        {"current_steps": n, "total_steps": 9, "reward": n / 10} for n in (1, 2)))}, "", TWO),
    "ms-swift's log": ({"logging.jsonl": jsonl(*(
        {"reward": n / 10, "rewards/a/mean": n / 10, "clip_ratio/low_mean": 0.0,
         "global_step/max_steps": f"{n}/9", "elapsed_time": "1m 2s"} for n in (1, 2)),
        {"train_runtime": 9.0, "global_step/max_steps": "9/9", "memory": 1.0})}, "",
        TWO | {"score/a": {1: 0.1, 2: 0.2}, "trl/memory": {}}),
    "a list whose step is global_step": ({"a.json": json.dumps(
        [{"global_step": n, "reward": n / 10} for n in (1, 2)])}, "", TWO),
    "a trainer that the user names": ({"a.csv": "step,kl,reward\n1,1,.1\n2,1,.2\n"}, "--from trl",
                                      TWO | {KL: {1: 1, 2: 1}}),
    "a trainer that the files contradict": ({"a.log": verl((1, 0.1))}, "--from trl", "--from"),
}  # fmt: skip


def placed(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, list):
            wandb_file(path, content, seed=3)
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content, newline="")
    return folder if len(files) > 1 else folder / next(iter(files))


def imported(source, out, words=""):
    arguments = parser_of("import").parse_args([str(source), "--out", str(out), *words.split()])
    return verb.run(arguments)


@pytest.mark.parametrize("name", CASES)
def test_figures_are_those_of_the_trainer_or_an_option_settles_it(tmp_path, name):
    files, words, expected = CASES[name]
    source = placed(tmp_path / "in", files)
    if isinstance(expected, str):
        with pytest.raises(Exception, match=expected) as found:
            imported(source, tmp_path / "run", words)
        assert "\n" not in str(found.value)
        assert not (tmp_path / "run").exists()
        return
    imported(source, tmp_path / "run", words)
    got = {}
    for line in map(json.loads, (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()):
        for metric, value in line.items():
            got.setdefault(metric, {})[line["step"]] = value
    for metric, values in expected.items():
        assert got.get(metric, {}) == pytest.approx(values, rel=1e-12, nan_ok=True), metric


GRPO = {"learning_rate": 1e-6, "num_generations": 4, "generation_batch_size": 8, "seed": 3}
OVERRIDES = "- algorithm.adv_estimator=grpo\n- +data.train_batch_size=16\n- ~trainer.x\n" + (
    "- actor_rollout_ref.actor.optim.lr=1e-6\n"
)
KEYS = {
    "overrides of Hydra": ({"a.jsonl": jsonl({"step": 1, "critic/score/mean": 0.5}),
                            ".hydra/overrides.yaml": OVERRIDES}, "",
                           {"estimator.name": "grpo", "rollout.prompts": 16, "actor.lr": 1e-6}),
    "a rate that YAML reads as a text": ({
        "a.jsonl": jsonl({"step": 1, "critic/score/mean": 0.5}),
        "c.yaml": "actor_rollout_ref: {actor: {optim: {lr: 1e-6}}}\n"}, "", {"actor.lr": 1e-6}),
    "a .wandb beside the state": ({"trainer_state.json": trl({"step": 1, "reward": 0.5}),
                                   "wandb/run-x.wandb": GRPO}, "",
                                  {"rollout.samples": 4, "rollout.prompts": 2, "seed": 3,
                                   "estimator.name": "grpo", "actor.lr": 1e-6}),
    "arguments in JSON": ({"trainer_state.json": trl({"step": 1, "reward": 0.5}),
                           "args.json": json.dumps(GRPO)}, "", {"rollout.prompts": 2, "seed": 3}),
    "a state alone": ({"trainer_state.json": trl({"step": 1, "reward": 0.5})}, "",
                      {"imported.from": "trl"}),
    "--set with commas": ({"trainer_state.json": trl({"step": 1, "reward": 0.5})},
                          "--set actor.betas=[0.9,0.95],rollout.samples=4",
                          {"actor.betas": [0.9, 0.95], "rollout.samples": 4}),
    "--set": ({"trainer_state.json": trl({"step": 1, "reward": 0.5})},
              "--set rollout.prompts=1 --set estimator.lam=0.9 --set kl.name=k3",
              {"rollout.prompts": 1, "estimator.lam": 0.9, "kl.name": "k3"}),
}  # fmt: skip


@pytest.mark.parametrize("name", KEYS)
def test_settings_are_those_of_the_files_and_of_the_user(tmp_path, name):
    files, words, expected = KEYS[name]
    files = {n: [hf(1, 0.5)] if c is GRPO else c for n, c in files.items()}
    source = placed(tmp_path / "in", files)
    for path in (tmp_path / "in").rglob("*.wandb"):
        wandb_file(path, [hf(1, 0.5)], **GRPO)
    keys = imported(source, tmp_path / "run", words).document["recipe"]
    assert {key: keys.get(key) for key in expected} == expected
    if len(files) == 1:
        assert keys.keys() == expected.keys() | {"imported.from"}, "no default is a setting"


def test_a_setting_in_place_of_the_files_is_noted(tmp_path):
    wandb_file(tmp_path / "r.wandb", [hf(1, 0.5)], **GRPO)
    result = imported(tmp_path / "r.wandb", tmp_path / "run", "--seed 9 --set rollout.samples=4")
    assert result.document["recipe"]["seed"] == 9
    assert [note for note in result.notes if "rollout.samples" in note] == []
    assert [note for note in result.notes if "seed" in note and "3" in note]


@pytest.mark.parametrize("word", ["rollout.prompt=1", "rollout.prompts", "rollout.prompts=many",
                                  "estimator.lamb=1"])  # fmt: skip
def test_a_setting_that_no_recipe_has_is_refused(tmp_path, word):
    source = placed(tmp_path / "in", {"trainer_state.json": trl({"step": 1, "reward": 0.5})})
    with pytest.raises(RlzooError, match="--set"):
        imported(source, tmp_path / "run", f"--set {word}")


def test_only_an_imported_run_is_replaced_and_only_by_a_whole_one(tmp_path, monkeypatch):
    def full(*_):
        raise OSError("the disk is full")

    source = placed(tmp_path / "in", {"trainer_state.json": trl({"step": 1, "reward": 0.5})})
    run = tmp_path / "run"
    imported(source, run)
    with pytest.raises(RlzooError, match="--overwrite"):
        imported(source, run)
    with pytest.raises(RlzooError, match="--reward"):
        imported(source, run, "--overwrite --reward nothing")
    assert (run / "summary.json").exists()
    with monkeypatch.context() as patch:
        patch.setattr(verb, "write", full)
        with pytest.raises(OSError, match="full"):
            imported(source, run, "--overwrite")
    assert (run / "summary.json").exists()
    with pytest.raises(RlzooError, match="SOURCE"):
        imported(run / "metrics.jsonl", run, "--overwrite")
    assert imported(source, run, "--overwrite --seed 4").document["recipe"]["seed"] == 4
    assert {p.name for p in tmp_path.iterdir() if not p.name.endswith(".lock")} == {"in", "run"}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("kept")
    with pytest.raises(RlzooError, match="--out"):
        imported(source, tmp_path / "mine", "--overwrite")


def test_settings_with_a_time_are_read(tmp_path):
    config = "trainer: {timeout: 24:00:00}\ndata: {train_batch_size: 8}\n"
    source = placed(tmp_path / "in", {"a.log": verl((1, 0.1), (2, 0.2)), "config.yaml": config})
    assert imported(source, tmp_path / "run").document["recipe"]["rollout.prompts"] == 8


def test_a_run_of_rlzoo_needs_no_import(tmp_path):
    imported(placed(tmp_path / "in", {"trainer_state.json": trl({"step": 1, "reward": 0.5})}),
             tmp_path / "run")  # fmt: skip
    (tmp_path / "run" / "samples.jsonl").write_text("")
    with pytest.raises(UsageError, match=r"SOURCE: .*run is a run of rlzoo"):
        imported(tmp_path / "run", tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_what_is_not_a_run_may_be_imported(tmp_path):
    placed(tmp_path / "in", {"trainer_state.json": trl({"step": 1, "reward": 0.5})})
    for path in (tmp_path / "in", tmp_path / "in" / "trainer_state.json"):
        with pytest.raises(RlzooError, match="rlzoo import"):
            rlzoo.doctor(path)


def test_events_in_double_precision_are_read(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.compat.proto.tensor_pb2 import TensorProto
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    value = Summary.Value(tag="reward", tensor=TensorProto(dtype=2, double_val=[0.1]))
    (writer := EventFileWriter(str(tmp_path / "in"))).add_event(
        Event(step=1, summary=Summary(value=[value]))
    )
    writer.close()
    imported(tmp_path / "in", tmp_path / "run")
    [line] = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(line) == {"step": 1, R: 0.1}


def test_texts_that_are_like_numbers_are_noted(tmp_path):
    rows = [{"step": n, "reward": n / 10, "accuracy": "12.5%", "name": "x"} for n in (1, 2)]
    source = placed(tmp_path / "in", {"a.jsonl": jsonl(*rows)})
    [note] = imported(source, tmp_path / "run").notes
    assert "'accuracy'" in note
