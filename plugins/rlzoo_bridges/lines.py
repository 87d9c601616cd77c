"""The lines that start a recipe's algorithm in another trainer.

They cover a recipe's algorithm (estimator, whitening, policy loss, aggregation, KL, temperature,
epochs) and the sizes that its file or the command line sets. A part that the other trainer does not
support is an error; users must add model, data and rewards themselves.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlzoo.errors import UsageError
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import Plan, make_plan
from rlzoo_bridges.hosts import PREFIX, Host, find_host

Words = list[str]

OWN_LOSS = ("slime",)  # lines carry the loss over to one of the trainer's own
UNSIZED = ("prime-rl", "rllm")  # lines carry no sizes over

# Sizes that fit a task and a model: a default or a preset of rlzoo's is of its own small ones.
SIZES = ("rollout.prompts", "rollout.samples", "rollout.max_new_tokens", "train.minibatches",
         "actor.lr")  # fmt: skip
NOT_GIVEN = re.compile(r"(^|/| )(defaults|(model|task)/[^/]+)\.yaml$|^defaults$")


@dataclass(frozen=True)
class Lines:
    """What to type. words: the command line's; files: name -> text; left: what is not carried."""

    trainer: str
    recipe: str | None
    start: str
    words: Words
    files: Mapping[str, str]
    left: Words

    @property
    def text(self) -> str:
        """To be pasted into a shell."""
        parts = [f"cat > {name} <<'EOF'\n{text}EOF" for name, text in self.files.items()]
        parts.append(" \\\n  ".join([self.start, *map(_quoted, self.words)]))
        return "\n".join(parts)


def lines(host: str, words: Sequence[str], zoo: Any) -> Lines:
    """The lines of a recipe for a trainer; raises RlzooError where it cannot run there."""
    found = find_host(host)
    plan = make_plan(compose(list(words), zoo), zoo)
    for bound in (plan.estimator, plan.policy_loss):
        estimator = bound.component.kind == "estimators"
        own = found.estimates if estimator else found.losses
        if own and (
            text := found.refusal(replace(bound.component, needs=bound.needs), zoo.columns)
        ):
            raise UsageError(text)
    start, said, files = WRITERS[host](found, plan)
    return Lines(host, plan.recipe.name, start, said, files, left(found, plan, zoo.columns))


def left(host: Host, plan: Plan, plugins: Mapping[str, Any]) -> Words:
    """Settings that are left to the other trainer's own ways."""
    config = plan.recipe.config
    out = ["model, data and reward function: add these with the trainer's own keys"]
    if not host.estimates:
        out.append(
            f"estimator={plan.estimator.name}, temperature, entropy bonus: the trainer uses its own"
        )
    if host.estimates and not host.losses and host.name not in OWN_LOSS:
        out.append("policy loss, its mean, KL, epochs, temperature: the trainer uses its own")
    for bound in (plan.estimator, plan.policy_loss):
        if (file := Path(bound.component.origin)).suffix == ".py":
            out.append(
                f"{bound.name} is your plugin: set RLZOO_PLUGINS={file.resolve()} for all of the "
                "trainer's processes (with Ray: env_vars of its runtime_env), or install it"
            )
    own = [f"{key}={plan.recipe.value(key)}" for key in SIZES if not given(plan, key)]
    if own:
        out.append(
            f"{', '.join(own)}: rlzoo's defaults are for small models; set values for your model "
            "and data"
        )
    chosen = [f"{key}={plan.recipe.value(key)}" for key in SIZES if given(plan, key)]
    if chosen and host.name in UNSIZED:
        out.append(f"{', '.join(chosen)}: set these with the trainer's own keys")
    if host.losses and plan.policy_loss.component.couples == "batch":
        out.append(
            f"policy_loss={plan.policy_loss.name} over a mini-batch: the loss receives only a "
            "micro-batch"
        )
    for travels, how in (
        (True, "the bridge computes them with their default options"),
        (False, "only rlzoo computes them"),
    ):
        names = [c.name for c in plan.columns if host.gives(c.name, plugins) is travels]
        if names:
            out.append(f"columns {', '.join(names)}: {how}")
    if plan.sampler is not plan.base_sampler:
        out.append(f"sampler={plan.sampler.name}: the trainer uses its own sampler")
    if plan.correction:
        out.append(f"correction={plan.correction}: the trainer uses its own")
    if plan.critic:
        out.append("value_loss and the critic's settings: the trainer uses its own")
        out.append(
            "truncated responses: no trainer keeps V after the last token, so it counts as 0"
        )
    if config.rollout.staleness:
        out.append(f"rollout.staleness={config.rollout.staleness}: the trainer uses its own")
    if config.rollout.truncation != "zero":
        out.append(f"rollout.truncation={config.rollout.truncation}: the trainer uses its own")
    return out


def given(plan: Plan, key: str) -> bool:
    """Whether the recipe's own file or the command line sets it, or its algorithm needs it: an
    estimator of groups is another one with a trainer's single sample."""
    if key == "rollout.samples" and plan.recipe.config.rollout.samples > 1:
        needs = {*plan.estimator.needs, *plan.policy_loss.needs}
        if "group_ids" in needs:
            return True
    return not NOT_GIVEN.search(plan.recipe.origins[key])


def _sizes(plan: Plan, theirs: Mapping[str, str]) -> dict[str, Any]:
    """The trainer's word for each size that is given. theirs: word -> key, or `minibatch.prompts`,
    `minibatch.rows`, of one optimizer step."""
    config = plan.recipe.config
    sizes = {key: plan.recipe.value(key) for key in SIZES if given(plan, key)}
    if given(plan, "rollout.prompts"):
        prompts, steps = config.rollout.prompts, config.train.minibatches
        sizes["minibatch.prompts"] = max(1, prompts // steps)
        if given(plan, "rollout.samples"):
            sizes["minibatch.rows"] = max(1, prompts * config.rollout.samples // steps)
    return {word: sizes[key] for word, key in theirs.items() if key in sizes}


def _length(plan: Plan, otherwise: str) -> Any:
    """The aggregation's length, if it has one; `otherwise` where that limit is not given."""
    length = plan.aggregation.options.get("length")
    limit = length == plan.recipe.config.rollout.max_new_tokens
    return otherwise if limit and not given(plan, "rollout.max_new_tokens") else length


# ---------------------------------------------------------------- each trainer's words


def verl(host: Host, plan: Plan) -> tuple[str, Words, dict[str, str]]:
    config, actor = plan.recipe.config, "actor_rollout_ref.actor"
    words = [f"algorithm.adv_estimator={PREFIX}{plan.estimator.name}"]
    words += [f"+algorithm.rlzoo.{k}={_value(v)}" for k, v in _estimator_options(plan).items()]
    words.append(f"critic.enable={str(plan.critic).lower()}")
    loss = f"{actor}.policy_loss"
    words.append(f"{loss}.loss_mode={PREFIX}{plan.policy_loss.name}")
    if plan.policy_loss.options:
        words.append(f"{loss}._target_=rlzoo_bridges.verl.PolicyLossConfig")
        words += [f"+{loss}.rlzoo.{k}={_value(v)}" for k, v in plan.policy_loss.options.items()]
    means = ("token_mean", "token_sum", "seq_mean_token_sum", "seq_mean_token_mean",
             "seq_mean_token_sum_norm")  # fmt: skip
    mean = _theirs(host, plan.aggregation, {name: name.replace("_", "-") for name in means})
    words.append(f"{actor}.loss_agg_mode={mean}")
    if length := _length(plan, "${data.max_response_length}"):
        words.append(f"{actor}.loss_scale_factor={length}")
    if plan.kl:
        names = {"k1": "kl", "k2": "mse", "k3": "low_var_kl", "abs": "abs", "k1_plus": "k1+",
                 "k3_plus": "k3+", "full": "full"}  # fmt: skip
        kind = _theirs(host, plan.kl, names)
        if config.kl.place == "reward":
            words += ["algorithm.use_kl_in_reward=true", f"algorithm.kl_penalty={kind}"]
            words.append(f"algorithm.kl_ctrl.kl_coef={config.kl.coef}")
        else:
            words += [f"{actor}.use_kl_loss=true", f"{actor}.kl_loss_type={kind}"]
            words.append(f"{actor}.kl_loss_coef={config.kl.coef}")
    if "sampler_log_probs" in plan.estimator.needs:
        words.append("actor_rollout_ref.rollout.calculate_log_probs=true")
    if "sum_pi_squared" in plan.estimator.needs:
        words += [f"{actor}.calculate_sum_pi_squared=true", "trainer.use_v1=false"]
    words += [
        f"actor_rollout_ref.rollout.temperature={config.rollout.temperature}",
        f"{actor}.ppo_epochs={config.train.epochs}",
        f"{actor}.entropy_coeff={config.actor.entropy_coef}",
    ]
    sizes = {
        "data.train_batch_size": "rollout.prompts",
        "data.max_response_length": "rollout.max_new_tokens",
        "actor_rollout_ref.rollout.n": "rollout.samples",
        f"{actor}.ppo_mini_batch_size": "minibatch.prompts",
        f"{actor}.optim.lr": "actor.lr",
    }
    words += [f"{word}={value}" for word, value in _sizes(plan, sizes).items()]
    return "python -m verl.trainer.main_ppo", words, {}


def skyrl(host: Host, plan: Plan) -> tuple[str, Words, dict[str, str]]:
    config, key = plan.recipe.config, "trainer.algorithm"
    words = [f"{key}.advantage_estimator={PREFIX}{plan.estimator.name}"]
    words += [f"rlzoo.estimator.{k}={_value(v)}" for k, v in _estimator_options(plan).items()]
    words.append(f"{key}.policy_loss_type={PREFIX}{plan.policy_loss.name}")
    own = plan.policy_loss.options
    words += [f"rlzoo.policy_loss.{k}={_value(v)}" for k, v in own.items()]
    means = {"token_mean": "token_mean", "seq_mean_token_mean": "sequence_mean",
             "seq_mean_token_sum_norm": "seq_mean_token_sum_norm"}  # fmt: skip
    mean = _theirs(host, plan.aggregation, means)
    words.append(f"{key}.loss_reduction={mean}")
    if length := _length(plan, "LENGTH"):
        words.append(f"{key}.max_seq_len={length}")
    inside = bool(plan.kl) and config.kl.place == "reward"
    if inside and {"scores", "sequence_scores"} & set(plan.estimator.needs):
        raise UsageError(
            f"{plan.estimator.component.label} reads scores before KL, which SkyRL does not keep; "
            "set kl.place=loss")  # fmt: skip
    words += [f"{key}.use_kl_in_reward={str(inside).lower()}",
              f"{key}.use_kl_loss={str(bool(plan.kl) and not inside).lower()}"]  # fmt: skip
    if plan.kl:
        kinds = {name: name for name in ("k1", "k2", "k3", "abs")}
        words.append(f"{key}.kl_estimator_type={_theirs(host, plan.kl, kinds)}")
        words.append(f"{key}.kl_loss_coef={config.kl.coef}")
    if plan.critic:
        words.append("trainer.critic.model.path=MODEL")
    words += [
        f"trainer.update_epochs_per_batch={config.train.epochs}",
        f"generator.sampling_params.temperature={config.rollout.temperature}",
    ]
    sizes = {
        "trainer.train_batch_size": "rollout.prompts",
        "trainer.policy_mini_batch_size": "minibatch.prompts",
        "trainer.policy.optimizer_config.lr": "actor.lr",
        "generator.n_samples_per_prompt": "rollout.samples",
        "generator.sampling_params.max_generate_length": "rollout.max_new_tokens",
    }
    words += [f"{word}={value}" for word, value in _sizes(plan, sizes).items()]
    return "python -m rlzoo_bridges.skyrl", words, {}


def slime(host: Host, plan: Plan) -> tuple[str, Words, dict[str, str]]:
    config, loss = plan.recipe.config, plan.policy_loss
    own = {"ppo_clip": "ppo" if plan.critic else "grpo", "ppo_dual_clip": "grpo"}
    if plan.critic:
        own["ppo_dual_clip"] = "ppo"
    else:
        own |= {"gspo": "gspo", "cispo": "cispo"}
    words = [f"--advantage-estimator {_theirs(host, loss, own)}"]
    words.append(f"--eps-clip {loss.options['clip_low']}")
    words.append(f"--eps-clip-high {loss.options['clip_high']}")
    if loss.name == "ppo_dual_clip":
        words.append(f"--eps-clip-c {loss.options['c']}")
    words.append("--custom-advantage-function-path rlzoo_bridges.slime.advantages")
    words += ["--custom-config-path rlzoo.yaml", "--disable-rewards-normalization"]
    means = {"token_mean": ["--calculate-per-token-loss"], "seq_mean_token_mean": []}
    words += _theirs(host, plan.aggregation, means)
    if plan.kl:
        kind = _theirs(host, plan.kl, {name: name for name in ("k1", "k2", "k3")})
        inside = config.kl.place == "reward"
        coef = ["--kl-coef"] if inside else ["--use-kl-loss", "--kl-loss-coef"]
        words += [*coef[:-1], f"{coef[-1]} {config.kl.coef}", f"--kl-loss-type {kind}"]
    if (epochs := config.train.epochs) > 1:
        raise UsageError(f"slime uses each rollout once, but the recipe has train.epochs={epochs}")
    words.append(f"--rollout-temperature {config.rollout.temperature}")
    words.append(f"--entropy-coef {config.actor.entropy_coef}")
    sizes = {
        "--rollout-batch-size": "rollout.prompts",
        "--n-samples-per-prompt": "rollout.samples",
        "--global-batch-size": "minibatch.rows",
        "--rollout-max-response-len": "rollout.max_new_tokens",
        "--lr": "actor.lr",
    }
    words += [f"{word} {value}" for word, value in _sizes(plan, sizes).items()]
    said = {"estimator": plan.estimator.name, **_estimator_options(plan)}
    yaml = "rlzoo:\n" + "".join(f"  {k}: {_value(v)}\n" for k, v in said.items())
    return "python train.py", words, {"rlzoo.yaml": yaml}


def trl(host: Host, plan: Plan) -> tuple[str, Words, dict[str, str]]:
    config = plan.recipe.config
    means = {"token_mean": "dapo", "seq_mean_token_mean": "grpo", "seq_mean_token_sum": "luspo",
             "seq_mean_token_sum_norm": "dr_grpo"}  # fmt: skip
    settings: dict[str, Any] = {
        "output_dir": "out",
        "loss_type": _theirs(host, plan.aggregation, means),
    }
    length = plan.aggregation.options.get("length")
    if length not in (None, config.rollout.max_new_tokens):
        raise UsageError(
            f"TRL divides by max_completion_length, but the recipe has aggregation.length={length}"
        )
    if plan.kl and (config.kl.place == "reward" or plan.kl.name != "k3"):
        raise UsageError(
            f"TRL supports only k3 in the loss, but the recipe has kl={plan.kl.name} in the "
            f"{config.kl.place}; set kl.name=k3 kl.place=loss, or kl.place=none"
        )
    settings["beta"] = config.kl.coef if plan.kl else 0.0
    settings |= {"num_iterations": config.train.epochs, "temperature": config.rollout.temperature}
    settings |= _sizes(plan, {
        "num_generations": "rollout.samples",
        "per_device_train_batch_size": "minibatch.rows",
        "steps_per_generation": "train.minibatches",
        "max_completion_length": "rollout.max_new_tokens",
        "learning_rate": "actor.lr",
    })  # fmt: skip
    text = "from trl import GRPOConfig\n\nfrom rlzoo_bridges.trl import ZooGRPOTrainer\n\n"
    text += "config = GRPOConfig(\n"
    text += "".join(f"    {k}={v!r},\n" for k, v in settings.items()) + ")\n"
    text += "trainer = ZooGRPOTrainer(\n    model=..., reward_funcs=..., train_dataset=...,\n"
    text += f"    args=config,\n    estimator={plan.estimator.name!r},\n"
    text += f"    options={_estimator_options(plan)!r},\n"
    text += f"    policy_loss={plan.policy_loss.name!r},\n"
    text += f"    loss_options={dict(plan.policy_loss.options)!r},\n)\ntrainer.train()\n"
    return "python train.py", [], {"train.py": text}


def prime_rl(host: Host, plan: Plan) -> tuple[str, Words, dict[str, str]]:
    config = plan.recipe.config
    _theirs(host, plan.aggregation, {"token_mean": ""})
    if plan.kl and config.kl.place == "reward":
        raise UsageError("prime-rl has no KL in the reward; set kl.place=loss or kl.place=none")
    if (epochs := config.train.epochs) > 1:
        raise UsageError(
            f"prime-rl uses each rollout once, but the recipe has train.epochs={epochs}"
        )
    said = {"loss": plan.policy_loss.name, **plan.policy_loss.options}
    if plan.kl:
        said |= {"kl": plan.kl.name, "kl_coef": config.kl.coef}
    pairs = ", ".join(f"{k} = {_toml(v)}" for k, v in said.items() if v is not None)
    text = '[trainer.loss]\ntype = "custom"\nimport_path = "rlzoo_bridges.prime_rl.policy_loss"\n'
    return "uv run rl @ rl.toml @ rlzoo.toml", [], {"rlzoo.toml": f"{text}kwargs = {{{pairs}}}\n"}


def rllm(host: Host, plan: Plan) -> tuple[str, Words, dict[str, str]]:
    options = "".join(f", {k}={v!r}" for k, v in _estimator_options(plan).items())
    text = "from rllm.trainer import AgentTrainer\n\nfrom rlzoo_bridges.rllm import register\n\n"
    text += (
        f"name = register({plan.estimator.name!r}{options})\ntrainer = AgentTrainer(\n    ...,\n"
    )
    text += '    traj_group_adv_estimator_map={"default": name},  # a role of your workflow\n)\n'
    return "python train.py", [], {"train.py": text + "trainer.train()\n"}


Writer = Callable[[Host, Plan], tuple[str, Words, dict[str, str]]]
WRITERS: dict[str, Writer] = {
    f.__name__.replace("_", "-"): f for f in (verl, skyrl, slime, trl, prime_rl, rllm)
}


def _estimator_options(plan: Plan) -> dict[str, Any]:
    """The estimator's options and how its advantages are whitened."""
    config = plan.recipe.config
    out = dict(plan.estimator.options)
    if config.whiten != "none":
        out |= {"whiten": config.whiten, "whiten_ddof": config.whiten_ddof}
    return out


def _theirs(host: Host, bound: Any, names: Mapping[str, Any]) -> Any:
    """The trainer's name for it; raises UsageError where it has nothing of the kind."""
    if bound.component.name not in names:
        raise UsageError(
            f"{host.title} has no counterpart of {bound.component.label}; it supports "
            f"{', '.join(names)}"
        )
    return names[bound.component.name]


def _value(value: Any) -> str:
    """As YAML and hydra read it."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, str) else repr(value)


def _quoted(word: str) -> str:
    parts = word.split(" ") if word.startswith("--") else [word]
    return " ".join(map(shlex.quote, parts))
