"""`rlzoo diagnose RUN --checkpoints`: compares the run's critic with the truth during training.

The run's task is enumerated on a few tokens, the same ones at every checkpoint. The policy of each
checkpoint has an exact V there. The estimators are evaluated with it and with the critic's
predictions for the same prefixes.
"""

import argparse
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RunError
from rlzoo.lm.build import build_world
from rlzoo.lm.world import World
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import Plan, make_plan
from rlzoo.runs.folder import RunFolder, saved_steps, step_of
from rlzoo.step import metrics as quality
from rlzoo.train.checkpoint import damage, load_networks
from rlzoo_lab.data.weights import open_own
from rlzoo_lab.data.words import is_run
from rlzoo_lab.diagnose.asked import CRITICS, critics_of, estimators_of, samples_of, sizes_of
from rlzoo_lab.diagnose.critic_cells import cells, value_bins
from rlzoo_lab.diagnose.model_world import (
    ModelWorld,
    draw_prompts,
    greedy_mass,
    likely_tokens,
    make_space,
)
from rlzoo_lab.diagnose.setting import Setting
from rlzoo_lab.oracle.episodes import enumerate_episodes
from rlzoo_lab.oracle.oracle import Oracle
from rlzoo_lab.oracle.tree import Tree, make_tree
from rlzoo_lab.oracle.worlds import make_critic

OWN = "own"  # the run's critic, a choice of --critic


def diagnose_checkpoints(words: list[str], arguments: argparse.Namespace) -> dict[str, Any]:
    """The document that `--json` prints: an entry for each checkpoint, the base model first.

    words: the run folder, then estimator=... and options; by default, the run's estimator.
    """
    began = time.perf_counter()
    _check(words, arguments)
    folder, zoo = open_own(words[0], "its checkpoints"), load_zoo()
    base, words = f"recipe={folder.path / 'recipe.yaml'}", words[1:]
    recipes = estimators_of([base, *words], zoo)
    samples = samples_of(arguments, recipes, zoo)
    sizes = sizes_of(arguments.batches, samples)
    asked = [OWN, CRITICS[0]]
    if arguments.critic != ",".join(CRITICS):
        asked = critics_of(arguments.critic, arguments.noise, (OWN, *CRITICS))
    tree = make_tree(arguments.vocabulary, arguments.horizon, prompts=arguments.prompts)

    # The requested estimators may need no critic; the run determines which networks there are.
    mine = [w for w in words if not w.startswith("estimator")]
    plan = make_plan(compose([base, *mine], zoo), zoo)
    world = build_world(plan)
    stages, notes = _stages(folder, world)
    start = _space(plan, world, stages, tree)
    entries, failed = [], []
    for stage in stages:
        state = stage.load()
        kl = plan.recipe.config.kl
        coef = state.get("kl_coef", kl.coef) if arguments.kl and _in_reward(plan) else 0.0
        space = start.renewed(coef)
        oracle = space.oracle
        episodes = enumerate_episodes(oracle, arguments.cut)
        setting = Setting(recipes[0], zoo, oracle, episodes, samples, coef, space)
        values = space.values(world.critic) if "critic" in stage.networks else None
        critics = _critics(asked, values, oracle, arguments.noise, plan.recipe.config.seed)
        rows = setting.ask(recipes, words, critics, sizes)
        failed += [{**fault, "step": stage.step} for fault in rows["failed"]]
        entries.append(
            {
                "step": stage.step,
                "expected_return": oracle.expected_return,
                "expected_length": oracle.expected_length,
                "gradient_norm": float(oracle.gradient().norm()),
                "kl": oracle.kl(),
                "kl_coef": coef,
                "share": space.share(),
                "own_critic": None if values is None else critic_error(oracle, values),
                "estimators": rows["estimators"],
            }
        )
    return {
        "run": str(folder.path),
        "world": setting.facts(arguments),
        "checkpoints": entries,
        "not_diagnosable": rows["not_diagnosable"],
        "left_out": rows["left_out"],
        "failed": failed,
        "notes": [*notes, *_cautions(plan, world, arguments)],
        "seconds": time.perf_counter() - began,
    }


def _check(words: list[str], arguments: argparse.Namespace) -> None:
    if not is_run(words[0]):
        raise RunError(f"--checkpoints: give a RUN folder first. Got {words[0]}")
    for word in words[1:]:
        if "=" not in word:
            raise RunError(f"--checkpoints: give one RUN, then key=value. Got {word!r}")
    if arguments.parameters:
        raise RunError(
            "--parameters: cannot be combined with --checkpoints; --json has all numbers"
        )
    if arguments.fixed_length:
        raise RunError("--fixed-length: a model may always end its response")


@dataclass
class _Stage:
    """A checkpoint, or the start of the run (path None); `networks`: those whose weights it has."""

    step: int
    path: Path | None
    networks: dict[str, torch.nn.Module]
    start: dict[str, dict[str, Tensor]]  # weights at the start of the run

    def load(self) -> dict[str, Any]:
        """Load the weights into the networks; returns the checkpoint's state."""
        if self.path is not None:
            return load_networks(self.path, self.networks)
        for name, network in self.networks.items():
            network.load_state_dict(self.start[name])
        return {}


def _stages(folder: RunFolder, world: World) -> tuple[list[_Stage], list[str]]:
    """The start and every whole checkpoint; and a line on what is wrong with each of the others."""
    paths = saved_steps(folder.checkpoints)
    if not paths:
        raise RunError(
            f"{folder.path} has no checkpoint; train with checkpoint.every=N checkpoint.keep=M"
        )
    networks, notes = world.changing, []
    start = {
        name: {key: x.clone() for key, x in network.state_dict().items()}
        for name, network in networks.items()
    }
    stages = [_Stage(0, None, networks, start)]
    for path in paths:
        fault = damage(path)
        if fault:
            notes.append(f"checkpoint {path.name} is damaged ({fault}), so it is left out")
            continue
        step = step_of(path)
        there = {n: x for n, x in networks.items() if (path / f"{n}.safetensors").exists()}
        stages.append(_Stage(step, path, there, start))
        if "critic" in networks and "critic" not in there:
            notes.append(f"checkpoint {path.name} has no critic, so only exact values are shown")
    if len(stages) == 1:
        raise RunError(f"{folder.checkpoints}: {'; '.join(notes)}")
    if "critic" not in networks:
        notes.append("this run has no critic, so only exact values are shown")
    if len(paths) == 1:
        notes.append(
            "only one checkpoint was kept; set checkpoint.every=N checkpoint.keep=M to keep more"
        )
    return stages, notes


def _space(plan: Plan, world: World, stages: list[_Stage], tree: Tree) -> ModelWorld:
    """The world of the base model, on tokens that are likely at one stage or another."""
    examples = draw_prompts(plan, world.policy, tree)
    mass: Any = 0
    for stage in stages:
        stage.load()
        mass = mass + greedy_mass(world.policy, examples, tree)
    stages[0].load()
    allowed = likely_tokens(world.policy, mass, tree)
    return make_space(plan, world.policy, tree, examples, allowed)


def _critics(
    asked: list[str], of_run: Tensor | None, oracle: Oracle, noise: float, seed: int
) -> dict[str, Tensor]:
    """The values (S,) of each critic that is there; the exact ones where none is."""
    values = {
        name: of_run if name == OWN else make_critic(name, oracle, size=noise, seed=seed)
        for name in asked
    }
    return {n: v for n, v in values.items() if v is not None} or {CRITICS[0]: oracle.v}


def _in_reward(plan: Plan) -> bool:
    kl = plan.recipe.config.kl
    return kl.name is not None and kl.place == "reward"


def _cautions(plan: Plan, world: World, arguments: argparse.Namespace) -> list[str]:
    """Notes if the run's critic learns other targets than the truth in the table."""
    notes = []
    if _in_reward(plan) and plan.recipe.config.kl.coef and not arguments.kl:
        notes.append(
            "the run's rewards include KL, which its critic learns; use --kl to include it here"
        )
    if world.critic is not None and plan.estimator.gamma != 1:
        notes.append(
            f"the run's critic learns returns with gamma = {plan.estimator.gamma:g}, but the truth "
            "uses gamma = 1"
        )
    return notes


def critic_error(oracle: Oracle, values: Tensor) -> dict[str, Any]:
    """Compare a critic's values (S,) with V of the policy, with states weighted by visits.

    explained_variance: 1 - Var(V^pi - V) / Var(V^pi), 0 if V^pi does not vary.
    of_returns: the share of Monte Carlo returns that V explains, as in the training metric;
        ceiling: the share that V^pi would explain, 1 - mean Var(G | s) / Var(G). positions, bins:
        the same by depth and by the size of V.
    """
    weight = oracle.visits / oracle.visits.sum()
    exact, luck = oracle.v, oracle.return_variance
    noise = quality.mean(luck, weight)
    return {
        "mean": quality.mean(values, weight),
        "mean_exact": quality.mean(exact, weight),
        "sd_exact": quality.variance(exact, weight) ** 0.5,
        "rmse": quality.mean((values - exact).square(), weight) ** 0.5,
        "explained_variance": quality.explained(values, exact, weight),
        "of_returns": quality.explained(values, exact, weight, noise),
        "ceiling": quality.explained(exact, exact, weight, noise),
        "slope": quality.slope(values, exact, weight),
        "positions": cells(values, exact, weight, oracle.tree.depth, luck),
        "bins": cells(values, exact, weight, value_bins(values, weight), luck),
    }
