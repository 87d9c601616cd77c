"""The keys of the core: type, range and meaning; where components are chosen.

Defaults live in configs/defaults.yaml. A recipe's `config` is read as a `Config`, so that a type
checker infers `config.rollout.samples`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args, get_type_hints

from rlzoo.plugin.options import Option, Range

if TYPE_CHECKING:
    Tree = dict[str, Any]
else:
    Tree = dict  # as options are read

MANY = 2**24  # more rows, tokens or parts than a machine holds: refused before any is made

FROM_0, FROM_1, SOME = Range(0), Range(1), Range(1, MANY)
POSITIVE, SHARE = Range(0, closed="neither"), Range(0, 1, closed="right")


class Section:
    if TYPE_CHECKING:  # as omegaconf's DictConfig: `config["actor"]`

        def __getitem__(self, key: str) -> Any: ...


class Chosen(Section):
    """A component, by its name; its options are next to it."""

    name: str


class Optimizer(Section):
    """The optimizer of the actor or the critic."""

    optimizer: Annotated[Literal["adamw", "muon", "sgd"], "muon: for matrices, AdamW for others"]
    lr: Annotated[float, FROM_0, "learning rate"]
    lr_schedule: Annotated[Literal["constant", "linear", "cosine"], "learning rate over the budget"]
    lr_warmup: Annotated[int, FROM_0, "steps of learning-rate warm-up"]
    weight_decay: Annotated[float, FROM_0, "decoupled weight decay (SGD: L2 penalty)"]
    betas: Annotated[list[float], "AdamW's two betas"]
    eps: Annotated[float, POSITIVE, "AdamW's epsilon"]
    momentum: Annotated[float | None, Range(0, 1, closed="left"), "null: 0.95 (Muon), 0 (SGD)"]
    muon: Annotated[list[str] | None, "parts of matrices' names; null: all but embeddings and head"]
    max_grad_norm: Annotated[float | None, FROM_0, "maximum gradient norm; null: no limit"]


class Run(Section):
    dir: Annotated[str | None, "the run's folder; null: runs/<recipe>-<task>-<time>"]
    overwrite: Annotated[bool, "replace an existing run folder; only the command line can set it"]
    save_batches: Annotated[
        int | None, FROM_0, "save the last N batches; null: the last checkpoint's, if below 5 MB"
    ]
    samples: Annotated[int, FROM_0, "samples written to samples.jsonl each step"]
    threads: Annotated[int | None, Range(1, 1024), "CPU threads; null: 1 for a small model"]


class ModelLora(Section):
    rank: Annotated[int, Range(0, MANY), "LoRA rank; 0: train all weights"]
    alpha: Annotated[float, POSITIVE, "adapters are scaled by alpha / rank"]
    targets: Annotated[list[str] | None, "adapted layers; null: all linear layers except the head"]


class Model(Section):
    name: Annotated[str | None, "a preset of configs/model/"]
    path: Annotated[str | None, "a folder with a transformers causal LM, or a hub id"]
    shape: Annotated[Tree | None, "sizes as in config.json, to estimate memory without the model"]
    dtype: Annotated[
        Literal["float32", "float64", "bfloat16", "float16"],
        "dtype of the weights; half precision loses small optimizer steps, except with LoRA",
    ]
    autocast: Annotated[Literal["auto", "none", "bfloat16"], "auto: bfloat16 on CUDA, else none"]
    attention: Annotated[str, "auto, or one of transformers: sdpa, eager, flash_attention_2, ..."]
    gradient_checkpointing: Annotated[bool, "recompute activations: less memory, a third more time"]
    trust_remote_code: Annotated[bool, "run the model's own code; only the command line can set it"]
    chat: Annotated[
        Literal["auto", "always", "never"],
        "apply the chat template to prompts that are messages (auto), to all, or to none",
    ]
    chat_args: Annotated[Tree | None, "arguments of the chat template: {enable_thinking: false}"]
    system: Annotated[str | None, "a system message for prompts without one"]
    lora: ModelLora


class Teacher(Section):
    """Frozen models whose log-probs the recipe uses."""

    name: Annotated[str | None, "a preset of configs/model/: a frozen model for its log-probs"]
    path: Annotated[str | None, "a folder or a hub id, as model.path; same tokenizer as the policy"]
    domains: Annotated[Tree | None, "a teacher's path per domain; teacher.path is for all others"]


class Parallel(Section):
    strategy: Annotated[
        Literal["replicate", "shard"],
        "with several processes, each has all weights (replicate) or a shard (FSDP2)",
    ]


class Rollout(Section):
    prompts: Annotated[int, SOME, "prompts per step"]
    samples: Annotated[int, SOME, "samples per prompt: the group size"]
    max_new_tokens: Annotated[int, SOME, "the length limit of a response"]
    min_new_tokens: Annotated[int, Range(0, MANY), "no EOS before N tokens; 0: at any time"]
    ignore_eos: Annotated[bool, "every response terminates at max_new_tokens; no token is EOS"]
    temperature: Annotated[float, POSITIVE, "the policy is softmax(logits / temperature)"]
    top_k: Annotated[int, FROM_0, "sample from the k most likely tokens; 0: all"]
    top_p: Annotated[float, SHARE, "nucleus sampling, after top_k"]
    replay: Annotated[
        Literal["none", "kept"],
        "kept: the policy is renormalised over the tokens that sampling kept (top_k, top_p, ...)",
    ]
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        "dtype of a copy for sampling; auto: bfloat16 on CUDA with autocast, otherwise no copy",
    ]
    cache: Annotated[
        Literal["auto", "static", "dynamic"],
        "static: fixed shape, with CUDA graphs on a GPU; auto: static on CUDA",
    ]
    staleness: Annotated[int, Range(0, 1000), "sample with the policy from N steps ago"]
    old_log_probs: Annotated[
        Literal["auto", "sampled", "recomputed"],
        "auto: recomputed if the sampler's may differ (half precision, a copy, staleness)",
    ]
    truncation: Annotated[
        Literal["bootstrap", "zero", "drop", "penalty"],
        "how to treat truncated rows: bootstrap with V(s_T), end with 0, drop, or apply a penalty",
    ]
    truncation_penalty: Annotated[float, FROM_0, "subtracted from a truncated row's score"]


class Correction(Section):
    name: Annotated[str | None, "a (B, T) column that weights the loss of off-policy samples"]


class Kl(Section):
    name: Annotated[str, "the KL penalty to the reference"]
    coef: Annotated[float, FROM_0, "coefficient; 0: no penalty and no reference model"]
    reference: Annotated[
        Literal["initial", "rollout", "ema", "every"],
        "the reference: the initial policy; the one that sampled (old_log_probs); a moving average "
        "of the policy; or its latest copy",
    ]
    sync_steps: Annotated[int | None, FROM_1, "ema, every: steps between updates; null: 1 for ema"]
    sync_mix: Annotated[float | None, SHARE, "ema: the policy's share in an update"]
    place: Annotated[Literal["reward", "loss", "none"], "where to add the penalty"]
    spread: Annotated[Literal["token", "last"], "KL in the reward: per token, or summed at the end"]
    controller: Annotated[Literal["fixed", "adaptive"], "whether the coefficient adapts"]
    target: Annotated[float, POSITIVE, "adaptive: target in nats per response"]
    horizon: Annotated[float, POSITIVE, "adaptive: horizon in responses"]


class Actor(Optimizer):
    entropy_coef: Annotated[float, FROM_0, "coefficient of the entropy bonus, in nats"]


class Critic(Optimizer):
    trunk: Annotated[Literal["own", "shared"], "a network, or a value head on the policy's trunk"]
    init: Annotated[str, "initial weights (trunk=own): actor, a reward with a path, or a folder"]
    freeze: Annotated[list[str], "untrained parts of an own trunk: trunk, attention, or names"]
    epochs: Annotated[int | None, FROM_1, "the critic's passes over each batch; null: train.epochs"]
    minibatches: Annotated[int | None, SOME, "optimizer steps per pass; null: train.minibatches"]
    coef: Annotated[float, FROM_0, "coefficient of the value loss with a shared trunk"]
    aggregation: Annotated[Chosen, "weights of tokens in the value loss"]
    bins: Annotated[int, Range(2, 2**16), "bins of a distributional critic"]
    low: Annotated[float, "the lowest bin's value"]
    high: Annotated[float, "the highest bin's value"]


class Train(Section):
    steps: Annotated[int | None, FROM_1, "budget: rollout-and-update steps"]
    tokens: Annotated[int | None, FROM_1, "budget: all generated tokens"]
    minutes: Annotated[float | None, FROM_0, "budget: wall time"]
    epochs: Annotated[int, FROM_1, "passes over each batch"]
    minibatches: Annotated[int, SOME, "optimizer steps per pass"]
    microbatch: Annotated[int | None, FROM_1, "rows per pass; null: as many as memory holds"]
    skip_no_signal: Annotated[bool, "no backward pass of rows whose advantages are all 0"]
    critic_warmup: Annotated[int, FROM_0, "number of initial steps that update only the critic"]


class Eval(Section):
    every: Annotated[int, FROM_0, "steps between evaluations; 0: only before and after training"]
    samples: Annotated[int, SOME, "held-out samples per evaluation"]
    temperature: Annotated[float, POSITIVE, "temperature of evaluations"]
    top_k: Annotated[int, FROM_0, "top-k of evaluations; 0: all"]
    top_p: Annotated[float, SHARE, "top-p of evaluations, after top_k"]
    max_new_tokens: Annotated[int | None, SOME, "length limit; null: rollout.max_new_tokens"]


class Checkpoint(Section):
    every: Annotated[int, FROM_0, "steps between checkpoints; 0: only at the end"]
    keep: Annotated[int, FROM_1, "number of checkpoints to keep"]
    best: Annotated[bool, "keep the model of the best evaluation in best/"]


class Stop(Section):
    patience: Annotated[int | None, FROM_1, "stop after N evaluations without a new best"]
    min_delta: Annotated[float, FROM_0, "minimum improvement of a new best"]
    target: Annotated[float | None, "stop when an evaluation's accuracy or score reaches this"]
    max_kl: Annotated[float | None, POSITIVE, "maximum KL to the reference, in nats per response"]


class Config(Section):
    """Every key of the core, as `recipe.config.rollout.samples`. Options of components are in the
    sections of the components that a recipe chooses; `Plan` has them bound."""

    seed: Annotated[int, Range(0, 2**63 - 1), "seed of weights, prompts and sampling noise"]
    device: Annotated[str, "auto (CUDA if available), cpu, cuda, cuda:1, ..."]
    run: Run
    model: Model
    teacher: Teacher
    parallel: Parallel
    task: Annotated[Chosen, "a task, or a preset of configs/task/"]
    rollout: Rollout
    sampler: Annotated[Chosen, "the sampler"]
    correction: Correction
    estimator: Annotated[Chosen, "the advantage estimator"]
    whiten: Annotated[Literal["none", "batch", "group"], "standardize advantages over tokens"]
    whiten_ddof: Annotated[Literal[0, 1], "0: population variance, 1: sample variance"]
    kl: Kl
    policy_loss: Annotated[Chosen, "the policy loss"]
    value_loss: Annotated[Chosen, "the critic's loss"]
    aggregation: Annotated[Chosen, "weights of tokens in the policy loss"]
    actor: Actor
    critic: Critic
    train: Train
    eval: Eval
    checkpoint: Checkpoint
    stop: Stop

    if TYPE_CHECKING:  # options of plugins, which no class here declares
        rewards: Mapping[str, Any]
        columns: Mapping[str, Any]
        loggers: Mapping[str, Any]


def _read(section: type, prefix: str = "") -> dict[str, Option]:
    """The options of a section and of those within, by their keys."""
    options: dict[str, Option] = {}
    for name, kind in get_type_hints(section, include_extras=True).items():
        key = f"{prefix}{name}"
        if isinstance(kind, type) and issubclass(kind, Section):
            options |= _read(kind, f"{key}.")
        elif get_args(kind)[:1] == (Chosen,):
            options[f"{key}.name"] = Option.read(f"{key}.name", Annotated[str, get_args(kind)[1]])
        else:
            options[key] = Option.read(key, kind)
    return options


KEYS: dict[str, Option] = _read(Config)

# Keys that are mappings, whose entries may be set one by one.
TREES = [key for key, option in KEYS.items() if dict in get_args(option.type)]

# Where a component is chosen, `KEY.name`, and its options are next to it; `KEY=x` is short.
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

# Keys that are gone: the value without an effect, which files may have, and what to do for another.
RETIRED: dict[str, tuple[Any, str]] = {
    "model.compile": (False, "it made steps slower, since passes then read a prompt once a row"),
    "critic.privileged": ("none", "the critic reads what the policy reads"),
    "model.tf32": (False, "float32 products have all their digits; see model.autocast"),
    "train.token_budget": (None, "train.microbatch limits the rows per pass"),
}

WEIGHT = Option.read("weight", Annotated[float, "the reward's weight in the sum"], 1.0)
