"""A world around a small model, its batches and its updates."""

from dataclasses import replace

import torch
from torch import nn

from rlzoo.accel.passes import Traits
from rlzoo.lm.build import build_world
from rlzoo.lm.policy import Policy
from rlzoo.lm.probe import Probed
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.step.trainer import Trainer
from rlzoo.step.update import make_optimizers, update

KNOWN = {}  # words and zoo -> their recipe, and the zoo, so that no other takes its id


def recipe_of(words, zoo, **how):
    """`compose`, once for the same words: a recipe is read only."""
    key = (*words, id(zoo), *how.items())
    if key not in KNOWN:
        KNOWN[key] = compose(list(words), zoo, **how), zoo
    return KNOWN[key][0]


def make_world(zoo, model_dir, *words):
    """Defaults, presets and `words`; the model in `model_dir`."""
    words = [f"model.path={model_dir}", "device=cpu", *words]
    return build_world(make_plan(recipe_of(words, zoo, need_recipe=False), zoo))


def changed(world, **settings):
    """The world whose policy has other `settings`."""
    policy = replace(world.policy, **settings)
    return replace(world, engine=replace(world.engine, policy=policy))


def unprobed(policy, path):
    """In place of `enforce`: a model that may do everything, and no passes to find that out."""
    return Probed(Traits(plain_head=True, no_trees=""), policy.decoder.static, {}, [])


def favour(policy, characters, *, eos, seed=0):
    """Make a random policy draw hardly anything but `characters`, so that some rows are right.

    eos: how much likelier than a character the end is, in nats. Log-probs differ by seed.
    """
    vocabulary = policy.model.config.vocab_size
    head = nn.Linear(policy.model.config.hidden_size, vocabulary)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        head.weight.copy_(0.1 * torch.randn(head.weight.shape, generator=generator))
        head.bias.fill_(-8.0)
        head.bias[policy.tokenizer.convert_tokens_to_ids(list(characters))] = 0
        head.bias[policy.eos_ids] = eos
    policy.model.lm_head = head.requires_grad_(False)
    return policy


def one_thread():
    """Threads only get in each other's way in a model this small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def world_of(zoo, words, recipe="ppo_gae"):
    """A recipe's world."""
    return build_world(make_plan(recipe_of([f"recipe={recipe}", *words], zoo), zoo))


def step(world, number=0):
    """A whole training step with optimizers of its own; its batch and metrics."""
    trainer = Trainer(world)
    trainer.steps = number
    return trainer.step()


def sampled(world, number=0):
    """A step's experience: its batch, and the forward pass that may have been kept."""
    trainer = Trainer(world)
    trainer.steps = number
    return trainer.sample()


def rolled(world, number=0):
    """A batch with all columns up to advantages."""
    return sampled(world, number).batch


def weights_after(zoo, words, recipe):
    """All weights after one update of a new world, and the update's metrics."""
    world = world_of(zoo, words, recipe)
    metrics = update(world, sampled(world), make_optimizers(world.engine, world.plan), 0, 0.1)
    return state_of(world), metrics


def state_of(world):
    """All weights, by network and name, as they are now."""
    return {
        f"{n}.{key}": x.clone()
        for n, network in world.engine.networks.items()
        for key, x in network.state_dict().items()
    }


def watch_passes(monkeypatch):
    """(positions, whether with a gradient) of each pass of a policy from here on."""
    seen, plain = [], Policy.run

    def run(self, rows, *head):
        seen.append((rows.ids.numel(), torch.is_grad_enabled()))
        return plain(self, rows, *head)

    monkeypatch.setattr(Policy, "run", run)
    return seen


def with_gradient(seen):
    """How many positions of `watch_passes` had a gradient."""
    return sum(positions for positions, grad in seen if grad)


def hold_trait(monkeypatch, name, value):
    """Every policy has this trait, whatever a probe finds out."""
    monkeypatch.setattr(Traits, name, property(lambda traits: value, lambda *given: None))
