"""The keys of the core: type, range and meaning; where components are chosen.

Defaults live in configs/defaults.yaml. A recipe's `config` is read as a `Config`, so that a type
checker knows `config.rollout.samples`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_type_hints

from rlzoo.plugin.options import Option, Range

if TYPE_CHECKING:
    Tree = dict[str, Any]
else:
    Tree = dict  # as options are read

MANY = 2**24  # more rows, tokens or parts than a machine holds: refused before any is made


class Section:
    """What every section can besides, as omegaconf's DictConfig: `config["actor"]`."""

    if TYPE_CHECKING:

        def __getitem__(self, key: str) -> Any: ...


class Optimizer(Section):
    """AdamW, the actor's or the critic's."""

    lr: Annotated[float, Range(0), "learning rate"]
    lr_schedule: Annotated[
        Literal["constant", "linear", "cosine"], "of the learning rate, to the end of the budget"
    ]
    lr_warmup: Annotated[int, Range(0), "steps over which the learning rate rises"]
    weight_decay: Annotated[float, Range(0), "AdamW's"]
    betas: Annotated[list[float], "AdamW's two"]
    eps: Annotated[float, Range(0, closed="neither"), "AdamW's"]
    max_grad_norm: Annotated[float | None, Range(0), "clips the gradient; null: never"]


class Run(Section):
    """The run folder and the process."""

    dir: Annotated[str | None, "the run's folder; null: runs/<recipe>-<task>-<time>"]
    overwrite: Annotated[
        bool, "replace a run folder that exists; only the command line sets it true"
    ]
    save_batches: Annotated[int, Range(0), "keep the last N batches as safetensors"]
    samples: Annotated[int, Range(0), "samples written to samples.jsonl each step"]
    threads: Annotated[
        int | None,
        Range(1, 1024),
        "CPU threads of torch; null: 1 for a small model, else torch's choice",
    ]


class ModelLora(Section):
    """LoRA adapters."""

    rank: Annotated[int, Range(0, MANY), "of LoRA adapters; 0: all weights are trained"]
    alpha: Annotated[float, Range(0, closed="neither"), "adapters are scaled by alpha / rank"]
    targets: Annotated[
        list[str] | None, "layers with an adapter; null: all linear ones but the head"
    ]


class Model(Section):
    """The policy, and how it computes."""

    name: Annotated[str | None, "a preset of configs/model/"]
    path: Annotated[str | None, "a folder with a transformers causal LM, or a hub id"]
    shape: Annotated[
        Tree | None, "sizes as in config.json, for the memory estimate of a model not at hand"
    ]
    dtype: Annotated[
        Literal["float32", "float64", "bfloat16", "float16"],
        "of the stored weights; below float32 small steps are lost, but for LoRA's",
    ]
    autocast: Annotated[
        Literal["auto", "none", "bfloat16"], "auto: bfloat16 on CUDA, none elsewhere"
    ]
    attention: Annotated[
        str, "auto, or an implementation of transformers': sdpa, eager, flash_attention_2, ..."
    ]
    gradient_checkpointing: Annotated[
        bool, "compute activations again in the backward pass: less memory, a third more time"
    ]
    compile: Annotated[bool, "torch.compile the passes over whole responses"]
    tf32: Annotated[
        bool, "on CUDA, products of float32 weights in TF32: faster, 10 bits of each factor"
    ]
    trust_remote_code: Annotated[
        bool, "run code that comes with the model; only the command line sets it true"
    ]
    chat: Annotated[
        Literal["auto", "always", "never"],
        "the chat template is for prompts that are messages, for all prompts, for none",
    ]
    system: Annotated[str | None, "a system message before what goes through the template"]
    lora: ModelLora


class Teacher(Section):
    """Frozen models whose log-probs a recipe asks for."""

    name: Annotated[
        str | None, "a preset of configs/model/: the frozen model whose log-probs a recipe asks for"
    ]
    path: Annotated[
        str | None, "a folder with a transformers causal LM, or a hub id, of the policy's tokenizer"
    ]
    domains: Annotated[
        Tree | None,
        "a teacher's path for each domain of the task's prompts; teacher.path is for those left",
    ]


class Parallel(Section):
    strategy: Annotated[
        Literal["replicate", "shard"],
        "of several processes, each holds all weights, or a share of them (FSDP2)",
    ]


class Task(Section):
    name: Annotated[str, "a task, or a preset of configs/task/"]


class Rollout(Section):
    """How responses are sampled."""

    prompts: Annotated[int, Range(1, MANY), "prompts per step"]
    samples: Annotated[int, Range(1, MANY), "samples per prompt: the group size"]
    max_new_tokens: Annotated[int, Range(1, MANY), "the length limit of a response"]
    temperature: Annotated[
        float, Range(0, closed="neither"), "the policy is softmax(logits / temperature)"
    ]
    top_k: Annotated[int, Range(0), "sample among the k likeliest; 0: all"]
    top_p: Annotated[
        float,
        Range(0, 1, closed="right"),
        "sample among the likeliest of this mass, of what top_k leaves",
    ]
    dtype: Annotated[
        Literal["auto", "float32", "bfloat16", "float16"],
        "of a copy of the policy that samples, adapters merged; auto: bfloat16 on CUDA under "
        "autocast, else no copy",
    ]
    cache: Annotated[
        Literal["auto", "static", "dynamic"],
        "of keys and values: of a fixed shape, its steps CUDA graphs on a GPU, or one that grows; "
        "auto: static on CUDA",
    ]
    staleness: Annotated[
        int,
        Range(0, 1000),
        "batches are sampled by the policy of so many steps ago, of which copies are kept; 0: of "
        "now",
    ]
    old_log_probs: Annotated[
        Literal["auto", "sampled", "recomputed"],
        "auto: recomputed in half precision, where a copy samples or sampling is not as scoring, "
        "and after rollout.staleness",
    ]
    truncation: Annotated[
        Literal["bootstrap", "zero", "drop", "penalty"],
        "what follows the last token of a truncated row: V(s_T), 0, no loss at all, a penalty",
    ]
    truncation_penalty: Annotated[float, Range(0), "taken off a truncated row's score"]


class Sampler(Section):
    name: Annotated[str, "what draws responses"]


class Correction(Section):
    name: Annotated[
        str | None, "a (B, T) column that weighs the policy loss, against off-policy samples"
    ]


class Estimator(Section):
    name: Annotated[str, "the advantage estimator"]


class Kl(Section):
    """The penalty to the reference."""

    name: Annotated[str, "the KL penalty to the reference"]
    coef: Annotated[float, Range(0), "of the penalty; 0: none, and no reference model"]
    place: Annotated[Literal["reward", "loss", "none"], "where the penalty enters"]
    spread: Annotated[Literal["token", "last"], "in the reward: at each token, or summed"]
    controller: Annotated[Literal["fixed", "adaptive"], "of the coefficient"]
    target: Annotated[float, Range(0, closed="neither"), "adaptive: nats per response"]
    horizon: Annotated[float, Range(0, closed="neither"), "adaptive: in responses"]


class PolicyLoss(Section):
    name: Annotated[str, "the policy loss"]


class ValueLoss(Section):
    name: Annotated[str, "the critic's loss"]


class Aggregation(Section):
    name: Annotated[str, "a weight per token of the policy loss"]


class Actor(Optimizer):
    """The policy's optimizer and loss."""

    entropy_coef: Annotated[float, Range(0), "of the entropy bonus, in nats"]


class CriticAggregation(Section):
    name: Annotated[str, "a weight per token of the value loss"]


class Critic(Optimizer):
    """The critic, its optimizer and loss."""

    trunk: Annotated[
        Literal["own", "shared"], "a network of its own, or a value head on the policy's trunk"
    ]
    init: Annotated[
        str,
        "what a critic's own network starts from: actor, a reward of the recipe that has a path, "
        "or a model's folder",
    ]
    privileged: Annotated[
        Literal["none", "answer"], "answer: the critic reads a line with the answer before a prompt"
    ]
    epochs: Annotated[
        int | None, Range(1), "the critic's passes over each batch; null: train.epochs"
    ]
    minibatches: Annotated[
        int | None, Range(1, MANY), "the critic's optimizer steps per pass; null: train.minibatches"
    ]
    coef: Annotated[float, Range(0), "of the value loss, where the trunk is shared"]
    aggregation: CriticAggregation
    bins: Annotated[int, Range(2, 2**16), "of a critic that predicts a distribution"]
    low: Annotated[float, "the lowest bin's value"]
    high: Annotated[float, "the highest bin's value"]


class Train(Section):
    """The budget, and how a batch is learned from."""

    steps: Annotated[int | None, Range(1), "budget: rollout-and-update steps"]
    tokens: Annotated[int | None, Range(1), "budget: tokens generated, all of them"]
    minutes: Annotated[float | None, Range(0), "budget: wall time"]
    epochs: Annotated[int, Range(1), "passes over each batch"]
    minibatches: Annotated[int, Range(1, MANY), "optimizer steps per pass"]
    microbatch: Annotated[
        int | None, Range(1), "rows per forward pass; null: by train.token_budget"
    ]
    token_budget: Annotated[
        int | None,
        Range(1),
        "positions per forward pass, prompts and padding included; null: what the model's size "
        "suggests",
    ]
    skip_no_signal: Annotated[
        bool,
        "read rows whose advantages are all 0 without a gradient, for the metrics alone, where "
        "they give none",
    ]
    critic_warmup: Annotated[int, Range(0), "first steps that update the critic only"]


class Eval(Section):
    """Evaluations on held-out prompts."""

    every: Annotated[int, Range(0), "steps between evaluations; 0: before and after only"]
    samples: Annotated[int, Range(1, MANY), "held-out samples of an evaluation"]
    temperature: Annotated[
        float, Range(0, closed="neither"), "of evaluations, whatever training samples at"
    ]
    top_k: Annotated[int, Range(0), "evaluations sample among the k likeliest; 0: all"]
    top_p: Annotated[
        float,
        Range(0, 1, closed="right"),
        "evaluations sample among the likeliest of this mass, of what top_k leaves",
    ]
    max_new_tokens: Annotated[
        int | None, Range(1, MANY), "length limit of evaluations; null: rollout.max_new_tokens"
    ]


class Checkpoint(Section):
    """What is kept on disk."""

    every: Annotated[int, Range(0), "steps between checkpoints; 0: at the end only"]
    keep: Annotated[int, Range(1), "checkpoints kept"]
    best: Annotated[bool, "keep the model of the best evaluation, in best/"]


class Stop(Section):
    """What ends a run early."""

    patience: Annotated[
        int | None,
        Range(1),
        "end after so many evaluations in a row without a new best; null: go on",
    ]
    min_delta: Annotated[float, Range(0), "a new best is better by at least this"]
    target: Annotated[float | None, "end when an evaluation's headline reaches this"]
    max_kl: Annotated[
        float | None,
        Range(0, closed="neither"),
        "end when a step's KL to the reference is over this, in nats per response",
    ]


class Config(Section):
    """Every key of the core, as `recipe.config.rollout.samples`. Options of components are in the
    sections of the components that a recipe chooses; `Plan` has them bound."""

    seed: Annotated[int, Range(0, 2**63 - 1), "of weights, prompts and sampling noise"]
    device: Annotated[str, "auto (CUDA where there is one), cpu, cuda, cuda:1, ..."]
    run: Run
    model: Model
    teacher: Teacher
    parallel: Parallel
    task: Task
    rollout: Rollout
    sampler: Sampler
    correction: Correction
    estimator: Estimator
    whiten: Annotated[Literal["none", "batch", "group"], "standardise advantages over tokens"]
    whiten_ddof: Annotated[Literal[0, 1], "0: population variance, 1: sample variance"]
    kl: Kl
    policy_loss: PolicyLoss
    value_loss: ValueLoss
    aggregation: Aggregation
    actor: Actor
    critic: Critic
    train: Train
    eval: Eval
    checkpoint: Checkpoint
    stop: Stop

    if TYPE_CHECKING:  # options of plugins, which no class here knows
        rewards: Mapping[str, Any]
        columns: Mapping[str, Any]
        loggers: Mapping[str, Any]


def _read(section: type, prefix: str = "") -> dict[str, Option]:
    """The options of a section and of those within, by their keys."""
    found: dict[str, Option] = {}
    for name, kind in get_type_hints(section, include_extras=True).items():
        key = f"{prefix}{name}"
        if isinstance(kind, type) and issubclass(kind, Section):
            found |= _read(kind, f"{key}.")
        else:
            found[key] = Option.read(key, kind)
    return found


KEYS: dict[str, Option] = _read(Config)


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
