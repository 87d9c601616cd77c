"""`rlzoo diagnose RUN --checkpoints`: the run's own critic against the truth, as training goes on.

The run's task is enumerated on a few tokens, the same ones at every checkpoint. The policy of each
checkpoint has an exact V there; its critic is asked about the same prefixes, and stands beside it
in the estimators.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from rlzoo.errors import RunError
from rlzoo.lm.build import build_models
from rlzoo.lm.models import Models
from rlzoo.oracle.bias import STEP_KL
from rlzoo.oracle.episodes import enumerate_episodes
from rlzoo.oracle.oracle import Oracle
from rlzoo.oracle.tree import make_tree
from rlzoo.oracle.worlds import make_critic
from rlzoo.plugin.registry import Zoo, load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.runs.folder import RunFolder, open_folder
from rlzoo.tools.diagnose.asked import CRITICS, critics_of, estimators_of, samples_of, sizes_of
from rlzoo.tools.diagnose.exact import Setting
from rlzoo.tools.diagnose.model_world import draw_prompts, greedy_mass, likely_tokens, make_space
from rlzoo.train import checkpoint

OWN = "own"  # the run's critic, a choice of --critic


def diagnose_checkpoints(
    words: list[str], arguments: argparse.Namespace, zoo: Zoo | None = None
) -> dict[str, Any]:
    """What `--json` prints: an entry for each checkpoint, the base model first.

    words: the run folder, then estimator=... and options; without them the run's own.
    """
    began = time.perf_counter()
    _refuse(words, arguments)
    folder, zoo = open_folder(words[0]), zoo or load_zoo()
    base, words = f"recipe={folder.path / 'recipe.yaml'}", words[1:]
    recipes = estimators_of([base, *words], zoo)
    first = recipes[0]
    samples = samples_of(arguments, first)
    sizes = sizes_of(arguments.batches, samples)
    asked = [OWN, CRITICS[0]]
    if arguments.critic != ",".join(CRITICS):
        asked = critics_of(arguments.critic, arguments.noise, (OWN, *CRITICS))
    tree = make_tree(arguments.vocabulary, arguments.horizon, prompts=arguments.prompts)

    # The estimators asked about may need no critic; which networks there are is the run's affair.
    mine = [w for w in words if not w.startswith("estimator")]
    plan = make_plan(compose([base, *mine], zoo), zoo)
    config = plan.recipe.config
    models = build_models(plan)
    stages, notes = _stages(folder, models)
    examples = draw_prompts(plan, models.policy, tree)
    mass: Any = 0
    for stage in stages:
        stage.load(models)
        mass = mass + greedy_mass(models.policy, examples, tree)
    stages[0].load(models)
    allowed = likely_tokens(models.policy, mass, tree)
    space = make_space(plan, models.policy, tree, examples, allowed)

    in_reward = config.kl.name is not None and config.kl.place == "reward"
    found: list[dict[str, Any]] = []
    undone: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for stage in stages:
        stage.load(models)
        coef = stage.state.get("kl_coef", config.kl.coef) if arguments.kl and in_reward else 0.0
        here = space.renewed(coef)
        oracle = here.oracle
        episodes = enumerate_episodes(oracle, arguments.cut)
        critics: dict[str, Tensor] = {}
        own = here.values(models.critic) if models.critic is not None and stage.critic else None
        for name in asked:
            if name != OWN:
                critics[name] = make_critic(name, oracle, size=arguments.noise, seed=config.seed)
            elif own is not None:
                critics[name] = own
        critics = critics or {CRITICS[0]: oracle.v}
        setting = Setting(first, zoo, oracle, episodes, samples, coef)
        rows, undone, faults, _ = setting.rows(recipes, words, critics, sizes, here)
        failed += [{**fault, "step": stage.step} for fault in faults]
        found.append(
            {
                "step": stage.step,
                "expected_return": oracle.expected_return,
                "expected_length": oracle.expected_length,
                "gradient_norm": float(oracle.gradient().norm()),
                "kl": oracle.kl(),
                "kl_coef": coef,
                "share": here.share(),
                "own_critic": None if own is None else critic_error(oracle, own),
                "estimators": rows,
            }
        )
    if in_reward and config.kl.coef and not arguments.kl:
        notes.append("the run's rewards hold a KL, which its critic learns; --kl counts it here")
    gamma = plan.gamma
    if models.critic is not None and gamma != 1:
        notes.append(f"the run's critic learns returns of gamma = {gamma:g}, the truth is of 1")
    return {
        "run": str(folder.path),
        "world": {
            "name": f"{plan.task_name} on {config.model.name or config.model.path}",
            "vocabulary": tree.vocabulary,
            "horizon": tree.horizon,
            "prompts": tree.prompts,
            "eos": tree.stops,
            "cut": arguments.cut,
            "states": tree.states,
            "episodes": len(episodes.probability),
            "samples": samples,
            "critic_noise": arguments.noise,
            "step_kl": STEP_KL,
            "seed": config.seed,
            **space.describe(),
        },
        "checkpoints": found,
        "not_diagnosable": undone,
        "failed": failed,
        "notes": notes,
        "seconds": time.perf_counter() - began,
    }


def _refuse(words: list[str], arguments: argparse.Namespace) -> None:
    if "=" in words[0]:
        raise RunError(f"--checkpoints: give a RUN folder first. Got {words[0]}")
    for word in words[1:]:
        if "=" not in word:
            raise RunError(f"--checkpoints: one RUN, then key=value. Got {word!r}")
    for flag in ("plot", "html", "parameters"):
        if getattr(arguments, flag):
            raise RunError(f"--{flag}: not with --checkpoints; --json has all its numbers")
    if arguments.fixed_length:
        raise RunError("--fixed-length: a model may always end its response")


def critic_error(oracle: Oracle, values: Tensor) -> dict[str, float]:
    """A critic's values (S,) against V of the policy, states as often as it visits them.

    explained_variance: 1 - Var(V^pi - V) / Var(V^pi), 0 where V^pi does not vary, as in training.
    """
    weight = oracle.visits / oracle.visits.sum()
    gap = values - oracle.v

    def mean(x: Tensor) -> float:
        return float((weight * x).sum())

    def variance(x: Tensor) -> float:
        return mean((x - mean(x)).square())

    spread = variance(oracle.v)
    return {
        "mean": mean(values),
        "mean_exact": mean(oracle.v),
        "sd_exact": spread**0.5,
        "rmse": mean(gap.square()) ** 0.5,
        "explained_variance": 1 - variance(gap) / spread if spread >= 1e-12 else 0.0,
    }


# ---------------------------------------------------------------- the run's networks


class _Stage:
    """A checkpoint, or the start of the run (path None), that can be put into the networks."""

    def __init__(self, step: int, path: Path | None, models: Models):
        self.step, self.path = step, path
        self.critic = path is None or (path / "critic.safetensors").exists()
        self.state: dict[str, Any] = {}
        self.start: dict[str, dict[str, Tensor]] = {}
        if path is None:
            for name, network in _networks(models).items():
                self.start[name] = {k: x.clone() for k, x in network.state_dict().items()}
        else:
            self.state = json.loads((path / "state.json").read_text(encoding="utf-8"))

    def load(self, models: Models) -> None:
        for name, network in _networks(models).items():
            if self.path is None:
                network.load_state_dict(self.start[name])
            elif name != "critic" or self.critic:
                tensors = load_file(self.path / f"{name}.safetensors")
                try:
                    checkpoint._load_network(network, tensors)
                except RuntimeError as error:  # other widths: model=... was given
                    raise RunError(
                        f"checkpoint {self.path.name} does not fit the model: "
                        f"{str(error).splitlines()[-1].strip()}"
                    ) from None


def _networks(models: Models) -> dict[str, torch.nn.Module]:
    networks: dict[str, torch.nn.Module] = {"actor": models.policy.model}
    if models.critic is not None:
        networks["critic"] = models.critic
    return networks


def _stages(folder: RunFolder, models: Models) -> tuple[list[_Stage], list[str]]:
    """The start and every whole checkpoint; what is wrong with the others, a line each."""
    notes = []
    stages = [_Stage(0, None, models)]
    found = checkpoint._steps(folder.checkpoints)
    if not found:
        raise RunError(
            f"{folder.path} has no checkpoint; train with checkpoint.every=N checkpoint.keep=M"
        )
    for path in found:
        fault = checkpoint.damage(path)
        if fault:
            notes.append(f"checkpoint {path.name} is damaged ({fault}): left out")
            continue
        stages.append(_Stage(int(path.name.removeprefix("step-")), path, models))
        if models.critic is not None and not stages[-1].critic:
            notes.append(f"checkpoint {path.name} has no critic: exact only")
    if len(stages) == 1:
        raise RunError(f"{folder.checkpoints}: {'; '.join(notes)}")
    if models.critic is None:
        notes.append("this run has no critic: exact values only")
    if len(found) == 1:
        notes.append("one checkpoint is kept; checkpoint.every=N checkpoint.keep=M keeps more")
    return stages, notes
