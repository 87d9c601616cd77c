"""A recipe's model and task as an enumerated world, with the policy restricted to a few tokens.

The mask is the same for sampling and enumeration: softmax over only the allowed tokens, at the
recipe's temperature. Every prefix passes through the model once; backpropagation through that graph
turns the gradient in the logits into the gradient in the parameters.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from rlzoo.errors import RlzooError
from rlzoo.lm.build import build_policy
from rlzoo.lm.prompts import encode_each
from rlzoo.mdp import noise
from rlzoo.mdp import rules as mdp
from rlzoo.mdp.batch import left_pad
from rlzoo.mdp.rules import decoded, draw_examples
from rlzoo.plugin.component import Example
from rlzoo.plugin.registry import Zoo
from rlzoo.recipe.compose import Recipe
from rlzoo.recipe.plan import Plan, make_plan
from rlzoo_lab.kit.oracle.bias import STEP_KL, expected_gradient, loss_gradient, truth
from rlzoo_lab.kit.oracle.episodes import EpisodeTable, enumerate_episodes
from rlzoo_lab.kit.oracle.means import means
from rlzoo_lab.kit.oracle.oracle import Oracle
from rlzoo_lab.kit.oracle.subject import EstimatorInWorld
from rlzoo_lab.kit.oracle.tree import Tree


@dataclasses.dataclass
class ModelWorld:
    """The oracle, and the graph from the model's parameters to its logits."""

    oracle: Oracle
    policy: Any
    reading: "_Reading"
    tokens: list[str]
    prompts: list[str]

    def describe(self) -> dict[str, Any]:
        return {"tokens": " ".join(map(repr, self.tokens)), "prompt_texts": self.prompts}

    @property
    def weights(self) -> list[Tensor]:
        return [p for p in self.policy.model.parameters() if p.requires_grad]

    def gradient(self, in_logits: Tensor) -> Tensor:
        """(parameters,) from d/d logits (S, V)."""
        with torch.enable_grad():
            grads = torch.autograd.grad(self.reading.logits(), self.weights, in_logits)
        return torch.cat([g.flatten() for g in grads]).double()

    def measure(self, subject: EstimatorInWorld) -> dict[str, float]:
        """Cosine and scale of E[g^] against g* in the parameters, and the gain of a step along
        E[g^] as a share of the gain along g*; also the cosine and gain for the recipe's loss."""
        star, estimated = self.gradient(truth(subject)), means(subject)
        own = self.gradient(expected_gradient(subject, estimated))
        mine = self.gradient(loss_gradient(subject, estimated))
        best, gain = self.step(star), self.step(mine)
        return {
            "cosine": float(mine @ star) / max(float(mine.norm() * star.norm()), 1e-300),
            "scale": float(own @ star) / max(float(star @ star), 1e-300),
            "gain": gain / best if best else 0.0,
        }

    @torch.no_grad()
    def step(self, direction: Tensor) -> float:
        """The objective's gain from a parameter step whose KL per response is `STEP_KL`."""
        if float(direction.norm()) < 1e-14:
            return 0.0
        before = [w.detach().clone() for w in self.weights]
        unit = direction / direction.norm()
        size, logits = 1e-2, self.oracle.logits
        for _ in range(12):
            self._move(before, size * unit)
            logits = self.reading.logits()
            ratio = (STEP_KL / max(float(self.oracle.kl_to(logits)), 1e-12)) ** 0.5
            if abs(ratio - 1) < 1e-3:
                break
            size *= min(max(ratio, 0.1), 10)
        self._move(before, 0 * unit)
        return float(self.oracle.improvement(logits))

    def _move(self, origin: list[Tensor], by: Tensor) -> None:
        steps = by.split([w.numel() for w in origin])
        for weight, start, step in zip(self.weights, origin, steps, strict=True):
            weight.copy_(start + step.view_as(start).to(start))


def make_model_world(recipe: Recipe, zoo: Zoo, tree: Tree, *, kl_coef: float = 0.0) -> ModelWorld:
    """The world of the current policy, which is also the KL reference. Raises RlzooError if there
    are too many prefixes for the model's vocabulary."""
    if recipe.config.rollout.ignore_eos:
        raise RlzooError("rollout.ignore_eos: in a model's world, EOS may end every response")
    torch.manual_seed(recipe.config.seed)
    plan = make_plan(recipe, zoo)
    policy = build_policy(recipe.config)
    examples = draw_prompts(plan, policy, tree)
    allowed = likely_tokens(policy, greedy_mass(policy, examples, tree), tree)
    ids = encode_each(policy.tokenizer, [e.prompt for e in examples])
    tokens = decoded(policy.tokenizer, [[i] for i in allowed.tolist()])
    reading = _Reading(policy, tree, ids, allowed)
    with torch.no_grad():
        plain = reading.logits()
    zeros = torch.zeros_like(plain)
    oracle = Oracle(tree, plain, zeros, zeros, plain, kl_coef=kl_coef)
    rewards = _rewards(plan, policy, oracle, examples, ids, allowed)
    if not bool((rewards != rewards[0, 0]).any()):
        raise RlzooError(
            "there is nothing to learn: every response of the tokens "
            f"{' '.join(map(repr, tokens))} of up to {tree.horizon} tokens gets the same reward; "
            "allow more tokens (--vocabulary, --horizon)"
        )
    oracle = dataclasses.replace(oracle, rewards=rewards)
    return ModelWorld(oracle, policy, reading, tokens, [e.prompt for e in examples])


MAX_LOGITS = 2**25  # of all prefixes over the model's whole vocabulary


def draw_prompts(plan: Plan, policy: Any, tree: Tree) -> list[Example]:
    """As many distinct prompts as the tree has; raises if the model would have too many
    prefixes."""
    wide = policy.model.config.get_text_config().vocab_size
    leaves = tree.level(tree.horizon - 1)
    needed = (leaves.stop - leaves.start) * (tree.horizon + 1) * wide
    if needed > MAX_LOGITS:
        raise RlzooError(
            f"too much to enumerate with this model: {needed:,} logits at vocabulary "
            f"{tree.vocabulary}, horizon {tree.horizon}; the limit is {MAX_LOGITS:,}. Lower "
            "--vocabulary, --horizon or --prompts"
        )
    generator = noise.generator(plan.recipe.config.seed, "diagnose/prompts")
    examples: dict[str, Example] = {}
    for _ in range(50):
        for item in draw_examples(plan.task, plan.task_name, "train", 4 * tree.prompts, generator):
            examples.setdefault(str(item.prompt), item)
        if len(examples) >= tree.prompts:
            return list(examples.values())[: tree.prompts]
    known = f"has only {len(examples)} prompts"
    raise RlzooError(f"--prompts: task {plan.task_name!r} {known}. Got {tree.prompts}")


def _prompt_columns(policy: Any, ids: list[list[int]], rows: Tensor) -> dict[str, Tensor]:
    prompt_ids, prompt_mask = left_pad(ids, policy.pad_id, policy.device)
    return {"prompt_ids": prompt_ids[rows], "prompt_mask": prompt_mask[rows]}


@torch.no_grad()
def greedy_mass(policy: Any, examples: list[Example], tree: Tree) -> Tensor:
    """(model's vocabulary,) the summed probability of each token along the greedy responses."""
    ids = encode_each(policy.tokenizer, [e.prompt for e in examples])
    prompts = _prompt_columns(policy, ids, torch.arange(len(ids)))
    drawn = policy.generate(prompts["prompt_ids"], prompts["prompt_mask"], None, tree.horizon)
    response = drawn["response_ids"]
    columns = {**prompts, "response_ids": response, "response_attention": torch.ones_like(response)}
    logits = policy.logits(columns)
    return (logits.float() / policy.temperature).softmax(-1).flatten(0, 1).sum(0)


def likely_tokens(policy: Any, mass: Tensor, tree: Tree) -> Tensor:
    """(V,) EOS and the other tokens with the most mass."""
    mass = mass.clone()
    special = [*policy.eos_ids, *policy.tokenizer.all_special_ids]
    mass[torch.tensor(sorted(set(special)), device=mass.device)] = -1
    likely = mass.topk(tree.vocabulary - 1).indices.sort().values
    return torch.cat([torch.tensor(policy.eos_ids[:1], device=mass.device), likely])


class _Reading:
    """A network's input for every prefix; prefixes of full depth contain all shorter ones."""

    def __init__(self, policy: Any, tree: Tree, ids: list[list[int]], allowed: Tensor):
        self.policy, self.tree, self.allowed = policy, tree, allowed
        leaves = tree.level(tree.horizon - 1)
        tokens = tree.prefixes[leaves, : tree.horizon - 1]
        response = allowed.cpu()[tokens].to(policy.device)
        prompts = _prompt_columns(policy, ids, tree.prompt[leaves])
        real = torch.ones_like(response)
        self.columns = {
            **prompts, "response_ids": response, "response_mask": real, "response_attention": real
        }  # fmt: skip
        at = torch.arange(leaves.start, leaves.stop)
        where = torch.empty(tree.states, 2, dtype=torch.long)  # a leaf below a state, and its depth
        for depth in range(tree.horizon - 1, -1, -1):
            where[at, 0] = torch.arange(leaves.stop - leaves.start)
            where[at, 1] = depth
            at = tree.parent[at]
        self.where = where

    def logits(self) -> Tensor:
        """(S, V) logits / temperature."""
        every = self.policy.logits(self.columns).float() / self.policy.temperature
        leaves = every[..., self.allowed]  # (leaves, T, V)
        return leaves[self.where[:, 0], self.where[:, 1]].cpu().double()


def _rewards(plan: Plan, policy: Any, oracle: Oracle, examples: list[Example],
             ids: list[list[int]], allowed: Tensor) -> Tensor:  # fmt: skip
    """(S, V) the recipe's rewards for each choice, with random rewards at their median."""
    if plan.conversation:
        raise RlzooError(
            f"--model: task {plan.task_name!r} sends observations within an episode, which the "
            "enumerated world does not support"
        )
    tree, episodes = oracle.tree, enumerate_episodes(oracle)
    mask = episodes.mask
    rows = [examples[i] for i in episodes.prompt.tolist()]
    response = torch.where(mask, allowed.cpu()[episodes.actions.clamp(min=0)], policy.pad_id)
    ended = ((episodes.actions == 0) & mask).any(1)
    columns: dict[str, Any] = {
        **{n: x.cpu() for n, x in _prompt_columns(policy, ids, episodes.prompt).items()},
        "prompts": [e.prompt for e in rows],
        "answers": [e.answer for e in rows],
        "prompt_index": torch.tensor([e.index for e in rows]),
        "group_ids": episodes.prompt,
        "response_ids": response,
        "response_mask": mask.float(),
        "response_attention": mask.float(),
        "terminated": ended,
        "truncated": ~ended,
        "noise": torch.where(mask, 0.5, 0.0),
    }
    columns["responses"] = mdp.decode(policy.tokenizer, columns, policy.eos_ids)
    columns["response_tokens"] = mdp.decode_tokens(policy.tokenizer, columns, policy.eos_ids)
    scores = mdp.score(plan, columns)["scores"].double()
    return _by_choice(tree, episodes, scores)


def _by_choice(tree: Tree, episodes: EpisodeTable, scores: Tensor) -> Tensor:
    mask = episodes.mask
    table = torch.zeros(tree.states, tree.vocabulary, dtype=torch.float64)
    table[episodes.states[mask], episodes.actions[mask]] = scores[mask]
    back = table[episodes.states[mask], episodes.actions[mask]]
    if not torch.allclose(back, scores[mask], atol=1e-6):
        raise RlzooError(
            "--model: a token's reward depends on later tokens; the enumerated world needs "
            "rewards that depend on the response so far"
        )
    return table
