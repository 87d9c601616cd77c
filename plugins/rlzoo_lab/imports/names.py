"""rlzoo's names for the metrics and settings of each trainer, from the table in trainers.yaml."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from rlzoo_lab.data.metrics import metrics

# Keys of a recipe that take a text; the others take a number.
TEXTS = ("estimator.name", "kl.name", "model.path", "task.name")
LOSS_TYPES = {"grpo": "seq_mean_token_mean", "dapo": "token_mean", "bnpo": "token_mean",
              "dr_grpo": "seq_mean_token_sum_norm"}  # fmt: skip
ESTIMATORS = {"reinforce_plus_plus": "reinforce", "reinforce++": "reinforce", "ppo": "gae",
              "gspo": "grpo"}  # fmt: skip
OF_PAIRS = ("rewards/chosen", "rewards/rejected")  # KTO's kl is of whole responses
OF_OPENRLHF = {"train/actor_lr", "train/return", "train/total_length"}
# How names of evaluations begin; verl's before 0.2 with the last.
EVALUATION = ("eval_", "eval/", "val-core/", "val-aux/", "val/test_score/")


@cache
def tables() -> dict[str, dict[str, dict[str, str]]]:
    """trainer -> kind (metrics, settings, evaluations, ...) -> its name -> rlzoo's name."""
    text = Path(__file__).with_name("trainers.yaml").read_text(encoding="utf-8")
    return dict(yaml.safe_load(text))


@cache
def _patterns(trainer: str, kind: str) -> list[tuple[re.Pattern[str], list[str]]]:
    """(a trainer's name, ours) of each line of the table; a * is a part of a name."""
    lines = tables().get(trainer, {}).get(kind, {})
    return [(re.compile("([^/]+)".join(map(re.escape, theirs.split("*")))), targets.split())
            for theirs, targets in lines.items()]  # fmt: skip


@cache
def ours(trainer: str, name: str, kind: str = "metrics") -> tuple[str, ...]:
    """rlzoo's names for a trainer's metric; empty if no line matches."""
    for pattern, targets in _patterns(trainer, kind):
        if match := pattern.fullmatch(name):
            for part in match.groups():
                targets = [target.replace("*", part, 1) for target in targets]
            return tuple(targets)
    return ()


@cache
def own(name: str) -> bool:
    """Whether the name is that of an rlzoo metric."""
    kinds = {"mean", "std", "min", "max"}
    for metric in metrics():
        head, star, _ = metric.name.partition("*")
        if name == metric.name or (star and name.removeprefix(head) in kinds and head in name):
            return True
    return name.startswith(("eval/reward/", "score/"))


def trainer_by_names(names: Iterable[str], stepped: Iterable[str] = ()) -> str:
    """The trainer whose own names are the most among the metrics, or rlzoo; empty if there are
    none. Names such as `kl`, `train/loss` and `eval/accuracy` are of no trainer. stepped: the names
    of steps; OpenRLHF and transformers, and so TRL, log `train/global_step`, TRL or `train/epoch`.
    """
    counts, sure, mine = dict.fromkeys(tables(), 0), set[str](), 0
    for name in set(names):
        generic = name.startswith("train/") and name.count("/") == 1
        if "/" not in name or generic or name.startswith(EVALUATION[:2]):
            continue
        found = [t for t in tables() if t != "csv" and any(_targets(t, name)[1:])]
        mine += own(name) and name not in tables()["csv"]["metrics"]
        sure |= set() if own(name) or len(found) > 1 else {*found}
        for trainer in found:
            counts[trainer] += 1
    if "train/global_step" in stepped or {"train/epoch", "train/learning_rate"} <= {*names}:
        whose = "trl" if OF_OPENRLHF.isdisjoint(names) else "openrlhf"
        counts[whose], sure = counts[whose] + 1, {*sure, whose}
    best = max(sorted(sure), key=counts.__getitem__, default="")
    return "rlzoo" if mine > counts.get(best, 0) else best


Metrics = dict[str, float]


def translate(trainer: str, values: Mapping[str, float]) -> tuple[Metrics, Metrics]:
    """(metrics of the step, of an evaluation) with rlzoo's names, or else TRAINER/NAME."""
    step, evaluation = Metrics(), Metrics()
    pairs = trainer == "trl" and any(n.removeprefix("train/") in OF_PAIRS for n in values)
    for name, value in values.items():
        fallback, *targets = _targets(trainer, name)
        if pairs and fallback == "trl/kl":
            targets = []
        for target in targets or [fallback]:
            (evaluation if target.startswith("eval/") else step)[target] = value
    return step, evaluation


@cache
def _targets(trainer: str, name: str) -> tuple[str, ...]:
    """(what it is called where we have no name, our names ...)."""
    if trainer == "rlzoo" and own(name):
        return name, name
    head = next((h for h in EVALUATION if name.startswith(h)), "")
    kept = f"eval/{trainer}/{name.removeprefix('eval/')}" if head else f"{trainer}/{name}"
    if trainer != "trl":
        return kept, *ours(trainer, name)
    if head in ("eval_", "eval/"):  # transformers' loggers put this before every name
        rest = name.removeprefix(head)
        return f"eval/trl/{rest}", *ours("trl", rest, "evaluations")
    rest = name.removeprefix("train/")
    return f"trl/{rest}", *ours("trl", rest)


def recipe_keys(trainer: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted keys of a recipe that a trainer's settings determine, and no others."""
    out = {}
    for theirs, key in tables().get(trainer, {}).get("settings", {}).items():
        if (value := _value(key, settings.get(theirs))) is not None:
            out[key] = value
    return out | {"trl": _of_trl, "verl": _of_verl}.get(trainer, lambda _: {})(settings)


def recipe_names() -> set[str]:
    """The keys of a recipe that some trainer's settings determine, options of components too."""
    more = {"policy_loss.name", "aggregation.name", "kl.name", "policy_loss.clip_high"}
    return more.union(*(table.get("settings", {}).values() for table in tables().values()))


def _value(key: str, value: Any) -> Any:
    if key in TEXTS:
        if isinstance(value, list) and all(isinstance(part, str) for part in value):
            value = "+".join(map(str, value)) or None
        if not isinstance(value, str):
            return None
        return ESTIMATORS.get(value, value.encode(errors="replace").decode())
    return value if type(value) in (int, float) else None


def _of_trl(s: Mapping[str, Any]) -> dict[str, Any]:
    """GRPOTrainer's, whose KL is k3 in the loss, and those of TRL's other trainers, which pay for
    it in the reward; there is a reference only where beta is not 0."""
    out: dict[str, Any] = {}
    if "num_ppo_epochs" in s:
        clip = {"policy_loss.clip_high": s["cliprange"]} if "cliprange" in s else {}
        return clip | {"estimator.name": "gae", "kl.place": "reward", "rollout.samples": 1}
    if "num_generations" not in s:
        return out
    rloo = "normalize_advantages" in s
    dr = s.get("scale_rewards") in (False, "none")
    out["estimator.name"] = "rloo" if rloo else "dr_grpo" if dr else "grpo"
    kl = {"kl.name": "k1", "kl.place": "reward"} if rloo else {"kl.name": "k3", "kl.place": "loss"}
    out |= kl if s.get("beta") else {}
    if s.get("importance_sampling_level") == "sequence":
        out["policy_loss.name"] = "gspo"
    if s.get("loss_type") in LOSS_TYPES:
        out["aggregation.name"] = LOSS_TYPES[s["loss_type"]]
    rows, samples = s.get("generation_batch_size"), s["num_generations"]
    if isinstance(rows, int) and isinstance(samples, int) and samples > 0:
        out["rollout.prompts"] = rows // samples
    if isinstance(high := s.get("epsilon_high") or s.get("epsilon"), int | float):
        out["policy_loss.clip_high"] = high
    if isinstance(steps := s.get("max_steps"), int) and steps > 0:
        out["train.steps"] = steps
    made, together = s.get("steps_per_generation"), s.get("gradient_accumulation_steps", 1)
    if isinstance(made, int) and isinstance(together, int) and together > 0:
        out["train.minibatches"] = max(1, made // together)
    betas = [s.get("adam_beta1"), s.get("adam_beta2")]
    if all(isinstance(b, float) for b in betas):
        out["actor.betas"] = betas
    return out


def _of_verl(s: Mapping[str, Any]) -> dict[str, Any]:
    """verl's KL is in the loss, in the reward, or nowhere. Before `use_kl_in_reward` came, with
    0.3, it was in the reward if it was not in the loss; all settings of a run have `hybrid_engine`,
    its overrides do not."""
    out: dict[str, Any] = {}
    actor = "actor_rollout_ref.actor."
    always = {"actor_rollout_ref.hybrid_engine", "algorithm.kl_ctrl.kl_coef"} <= s.keys()
    if s.get(f"{actor}use_kl_loss") is True:
        out["kl.place"] = "loss"
        if isinstance(coef := s.get(f"{actor}kl_loss_coef"), int | float):
            out["kl.coef"] = coef
    elif s.get("algorithm.use_kl_in_reward", always) is True:
        out["kl.place"] = "reward"
    elif f"{actor}use_kl_loss" in s:
        out["kl.coef"] = 0.0
    rows, batch = s.get(f"{actor}ppo_mini_batch_size"), s.get("data.train_batch_size")
    if isinstance(rows, int) and isinstance(batch, int) and 0 < rows <= batch:
        out["train.minibatches"] = batch // rows
    return out
