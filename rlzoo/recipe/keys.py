"""The keys of the core: type, range and meaning; where components are chosen."""

from typing import Annotated, Any, Literal

from rlzoo.plugin.options import Option, Range

_OPTIMIZER: dict[str, Any] = {  # the actor's and the critic's
    "lr": Annotated[float, Range(0), "learning rate"],
    "lr_schedule": Annotated[
        Literal["constant", "linear", "cosine"], "of the learning rate, to the end of the budget"
    ],
    "lr_warmup": Annotated[int, Range(0), "steps over which the learning rate rises"],
    "weight_decay": Annotated[float, Range(0), "AdamW's"],
    "betas": Annotated[list[float], "AdamW's two"],
    "eps": Annotated[float, Range(0, closed="neither"), "AdamW's"],
    "max_grad_norm": Annotated[float | None, Range(0), "clips the gradient; null: never"],
}

MANY = 2**24  # more rows, tokens or parts than a machine holds: refused before any is made


# Every key of the core: type, range, meaning. Defaults live in configs/defaults.yaml.
_KEYS: dict[str, Any] = {
    "seed": Annotated[int, Range(0, 2**63 - 1), "of weights, prompts and sampling noise"],
    "device": Annotated[str, "auto (CUDA where there is one), cpu, cuda, cuda:1, ..."],
    "run.dir": Annotated[str | None, "the run's folder; null: runs/<recipe>-<task>-<time>"],
    "run.overwrite": Annotated[
        bool, "replace a run folder that exists; only the command line sets it true"
    ],
    "run.save_batches": Annotated[int, Range(0), "keep the last N batches as safetensors"],
    "run.samples": Annotated[int, Range(0), "samples written to samples.jsonl each step"],
    "run.threads": Annotated[
        int | None,
        Range(1, 1024),
        "CPU threads of torch; null: 1 for a small model, else torch's choice",
    ],
    "model.name": Annotated[str | None, "a preset of configs/model/"],
    "model.path": Annotated[str | None, "a folder with a transformers causal LM, or a hub id"],
    "model.shape": Annotated[
        dict | None, "sizes as in config.json, for the memory estimate of a model not at hand"
    ],
    "model.dtype": Annotated[
        Literal["float32", "float64", "bfloat16", "float16"],
        "of the stored weights; below float32 small steps are lost, but for LoRA's",
    ],
    "model.autocast": Annotated[
        Literal["auto", "none", "bfloat16"], "auto: bfloat16 on CUDA, none elsewhere"
    ],
    "model.attention": Annotated[
        str, "auto, or an implementation of transformers': sdpa, eager, flash_attention_2, ..."
    ],
    "model.gradient_checkpointing": Annotated[
        bool, "compute activations again in the backward pass: less memory, a third more time"
    ],
    "model.compile": Annotated[bool, "torch.compile the passes over whole responses"],
    "model.tf32": Annotated[
        bool, "on CUDA, products of float32 weights in TF32: faster, 10 bits of each factor"
    ],
    "model.trust_remote_code": Annotated[
        bool, "run code that comes with the model; only the command line sets it true"
    ],
    "model.chat": Annotated[
        Literal["auto", "always", "never"],
        "the chat template is for prompts that are messages, for all prompts, for none",
    ],
    "model.system": Annotated[str | None, "a system message before what goes through the template"],
    "model.lora.rank": Annotated[
        int, Range(0, MANY), "of LoRA adapters; 0: all weights are trained"
    ],
    "model.lora.alpha": Annotated[
        float, Range(0, closed="neither"), "adapters are scaled by alpha / rank"
    ],
    "model.lora.targets": Annotated[
        list[str] | None, "layers with an adapter; null: all linear ones but the head"
    ],
    "teacher.name": Annotated[
        str | None, "a preset of configs/model/: the frozen model whose log-probs a recipe asks for"
    ],
    "teacher.path": Annotated[
        str | None, "a folder with a transformers causal LM, or a hub id, of the policy's tokenizer"
    ],
    "teacher.domains": Annotated[
        dict | None,
        "a teacher's path for each domain of the task's prompts; teacher.path is for those left",
    ],
    "parallel.strategy": Annotated[
        Literal["replicate", "shard"],
        "of several processes, each holds all weights, or a share of them (FSDP2)",
    ],
    "task.name": Annotated[str, "a task, or a preset of configs/task/"],
    "rollout.prompts": Annotated[int, Range(1, MANY), "prompts per step"],
    "rollout.samples": Annotated[int, Range(1, MANY), "samples per prompt: the group size"],
    "rollout.max_new_tokens": Annotated[int, Range(1, MANY), "the length limit of a response"],
    "rollout.temperature": Annotated[
        float, Range(0, closed="neither"), "the policy is softmax(logits / temperature)"
    ],
    "rollout.top_k": Annotated[int, Range(0), "sample among the k likeliest; 0: all"],
    "rollout.top_p": Annotated[
        float,
        Range(0, 1, closed="right"),
        "sample among the likeliest of this mass, of what top_k leaves",
    ],
    "rollout.dtype": Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        "of a copy of the policy that samples, adapters merged; auto: bfloat16 on CUDA under "
        "autocast, else no copy",
    ],
    "rollout.cache": Annotated[
        Literal["auto", "static", "dynamic"],
        "of keys and values: of a fixed shape, its steps CUDA graphs on a GPU, or one that grows; "
        "auto: static on CUDA",
    ],
    "rollout.staleness": Annotated[
        int,
        Range(0, 1000),
        "batches are sampled by the policy of so many steps ago, of which copies are kept; 0: of "
        "now",
    ],
    "rollout.old_log_probs": Annotated[
        Literal["auto", "sampled", "recomputed"],
        "auto: recomputed in half precision, where a copy samples or sampling is not as scoring, "
        "and after rollout.staleness",
    ],
    "rollout.truncation": Annotated[
        Literal["bootstrap", "zero", "drop", "penalty"],
        "what follows the last token of a truncated row: V(s_T), 0, no loss at all, a penalty",
    ],
    "rollout.truncation_penalty": Annotated[float, Range(0), "taken off a truncated row's score"],
    "sampler.name": Annotated[str, "what draws responses"],
    "correction.name": Annotated[
        str | None, "a (B, T) column that weighs the policy loss, against off-policy samples"
    ],
    "estimator.name": Annotated[str, "the advantage estimator"],
    "whiten": Annotated[Literal["none", "batch", "group"], "standardise advantages over tokens"],
    "whiten_ddof": Annotated[Literal[0, 1], "0: population variance, 1: sample variance"],
    "kl.name": Annotated[str, "the KL penalty to the reference"],
    "kl.coef": Annotated[float, Range(0), "of the penalty; 0: none, and no reference model"],
    "kl.place": Annotated[Literal["reward", "loss", "none"], "where the penalty enters"],
    "kl.spread": Annotated[Literal["token", "last"], "in the reward: at each token, or summed"],
    "kl.controller": Annotated[Literal["fixed", "adaptive"], "of the coefficient"],
    "kl.target": Annotated[float, Range(0, closed="neither"), "adaptive: nats per response"],
    "kl.horizon": Annotated[float, Range(0, closed="neither"), "adaptive: in responses"],
    "policy_loss.name": Annotated[str, "the policy loss"],
    "value_loss.name": Annotated[str, "the critic's loss"],
    "aggregation.name": Annotated[str, "a weight per token of the policy loss"],
    **{f"actor.{name}": kind for name, kind in _OPTIMIZER.items()},
    "actor.entropy_coef": Annotated[float, Range(0), "of the entropy bonus, in nats"],
    **{f"critic.{name}": kind for name, kind in _OPTIMIZER.items()},
    "critic.trunk": Annotated[
        Literal["own", "shared"], "a network of its own, or a value head on the policy's trunk"
    ],
    "critic.init": Annotated[
        str,
        "what a critic's own network starts from: actor, a reward of the recipe that has a path, "
        "or a model's folder",
    ],
    "critic.privileged": Annotated[
        Literal["none", "answer"], "answer: the critic reads a line with the answer before a prompt"
    ],
    "critic.epochs": Annotated[
        int | None, Range(1), "the critic's passes over each batch; null: train.epochs"
    ],
    "critic.minibatches": Annotated[
        int | None, Range(1, MANY), "the critic's optimizer steps per pass; null: train.minibatches"
    ],
    "critic.coef": Annotated[float, Range(0), "of the value loss, where the trunk is shared"],
    "critic.aggregation.name": Annotated[str, "a weight per token of the value loss"],
    "critic.bins": Annotated[int, Range(2, 2**16), "of a critic that predicts a distribution"],
    "critic.low": Annotated[float, "the lowest bin's value"],
    "critic.high": Annotated[float, "the highest bin's value"],
    "train.steps": Annotated[int | None, Range(1), "budget: rollout-and-update steps"],
    "train.tokens": Annotated[int | None, Range(1), "budget: tokens generated, all of them"],
    "train.minutes": Annotated[float | None, Range(0), "budget: wall time"],
    "train.epochs": Annotated[int, Range(1), "passes over each batch"],
    "train.minibatches": Annotated[int, Range(1, MANY), "optimizer steps per pass"],
    "train.microbatch": Annotated[
        int | None, Range(1), "rows per forward pass; null: by train.token_budget"
    ],
    "train.token_budget": Annotated[
        int | None,
        Range(1),
        "positions per forward pass, prompts and padding included; null: what the model's size "
        "suggests",
    ],
    "train.skip_no_signal": Annotated[
        bool,
        "read rows whose advantages are all 0 without a gradient, for the metrics alone, where "
        "they give none",
    ],
    "train.critic_warmup": Annotated[int, Range(0), "first steps that update the critic only"],
    "eval.every": Annotated[int, Range(0), "steps between evaluations; 0: before and after only"],
    "eval.samples": Annotated[int, Range(1, MANY), "held-out samples of an evaluation"],
    "eval.temperature": Annotated[
        float, Range(0, closed="neither"), "of evaluations, whatever training samples at"
    ],
    "eval.top_k": Annotated[int, Range(0), "evaluations sample among the k likeliest; 0: all"],
    "eval.top_p": Annotated[
        float,
        Range(0, 1, closed="right"),
        "evaluations sample among the likeliest of this mass, of what top_k leaves",
    ],
    "eval.max_new_tokens": Annotated[
        int | None, Range(1, MANY), "length limit of evaluations; null: rollout.max_new_tokens"
    ],
    "checkpoint.every": Annotated[int, Range(0), "steps between checkpoints; 0: at the end only"],
    "checkpoint.keep": Annotated[int, Range(1), "checkpoints kept"],
    "checkpoint.best": Annotated[bool, "keep the model of the best evaluation, in best/"],
    "stop.patience": Annotated[
        int | None,
        Range(1),
        "end after so many evaluations in a row without a new best; null: go on",
    ],
    "stop.min_delta": Annotated[float, Range(0), "a new best is better by at least this"],
    "stop.target": Annotated[float | None, "end when an evaluation's headline reaches this"],
    "stop.max_kl": Annotated[
        float | None,
        Range(0, closed="neither"),
        "end when a step's KL to the reference is over this, in nats per response",
    ],
}

KEYS: dict[str, Option] = {key: Option.read(key, kind) for key, kind in _KEYS.items()}


# Where a component is chosen, `KEY.name`, and its options stand beside it; `KEY=x` is short.
SECTIONS: dict[str, str] = {
    "task": "tasks",
    "sampler": "samplers",
    "correction": "columns",
    "estimator": "estimators",
    "kl": "kl_penalties",
    "policy_loss": "policy_losses",
    "value_loss": "value_losses",
    "aggregation": "aggregations",
    "critic.aggregation": "aggregations",
}

# Where several may be chosen, `KEY.NAME.option`; `KEY=[a,b]` is short and replaces the set.
COLLECTIONS: dict[str, str] = {"rewards": "rewards", "columns": "columns", "loggers": "loggers"}

WEIGHT = Option.read("weight", Annotated[float, "of a reward in the sum"], 1.0)
