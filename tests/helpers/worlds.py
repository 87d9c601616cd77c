"""A world around a random model, for tests of rollouts and environments."""

import torch
from torch import nn

from rlzoo.lm.build import build_world
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan


def make_world(zoo, model_dir, *words):
    """Defaults, presets and `words`; the model in `model_dir`."""
    words = [f"model.path={model_dir}", "device=cpu", *words]
    return build_world(make_plan(compose(words, zoo, need_recipe=False), zoo))


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
