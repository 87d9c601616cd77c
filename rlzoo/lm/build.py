"""Builds the models that a plan needs, and no others."""

from pathlib import Path
from typing import Any

import torch

from rlzoo.accel import recompute, threads
from rlzoo.accel.device import pick_device
from rlzoo.accel.memory import sampling_dtypes
from rlzoo.accel.ranks import ALONE, Ranks
from rlzoo.accel.sampling_copy import SamplingCopy
from rlzoo.accel.shard import shard
from rlzoo.errors import ModelError
from rlzoo.lm.contract import enforce
from rlzoo.lm.critic import Critic
from rlzoo.lm.loading import (
    DEQUANTIZED,
    check_vocabulary,
    load_causal_lm,
    load_config,
    load_tokenizer,
    load_trunk,
    origin,
    quantized_by,
    resolve_path,
    trunk_of,
)
from rlzoo.lm.lora import add_lora
from rlzoo.lm.models import Models
from rlzoo.lm.policy import Policy
from rlzoo.lm.weights import checksum
from rlzoo.mdp.rules import token_name
from rlzoo.recipe.keys import Config
from rlzoo.recipe.plan import Plan


def build_models(plan: Plan, ranks: Ranks = ALONE) -> Models:
    """The models that the plan needs, on the recipe's device."""
    config = plan.recipe.config
    torch.manual_seed(config.seed)
    torch.backends.cuda.matmul.allow_tf32 = False  # of the process: set for each run
    policy = build_policy(config)
    models = Models(plan, policy, seed=config.seed, ranks=ranks)
    if models.sharded and config.model.compile:
        raise ModelError("parallel.strategy: shard cannot be combined with model.compile")
    # Found out by passes, and remembered: before there is a copy, a shard or a compiled layer.
    models.contract, told = enforce(policy, config.model.name or str(config.model.path))
    models.notes += told
    torch.backends.cuda.matmul.allow_tf32 = config.model.tf32  # the contract's limits are float32's
    policy.sampled_in, copied = sampling_dtypes(config, policy.device.type)
    if copied:
        policy.sampled_by = SamplingCopy(policy.model, getattr(torch, copied))
    if plan.reference:
        models.reference = policy.frozen_copy()
        if models.sharded and models.reference.model is not policy.model:
            shard(models.reference.model)
    for domain in plan.teachers:
        models.teachers[domain] = _teacher(plan, domain, policy, models.notes)
        if models.sharded:
            shard(models.teachers[domain].model)
    if plan.critic:
        wide = "value_logits" in plan.needs or "value_support" in plan.needs
        c = config.critic
        dtype = torch.promote_types(policy.model.dtype, torch.float32)
        support = torch.linspace(c.low, c.high, c.bins, dtype=dtype) if wide else None
        shared = c.trunk == "shared"
        start = None if shared else _critic_start(plan, policy)
        critic = Critic(policy, support, shared=shared, start=start)
        if c.privileged == "answer":
            critic.reads = models.prompt_format.told
            models.fit_told()
        if models.sharded and not shared:
            shard(critic.trunk)
            shard(critic.head)
        models.add_critic(critic)
    if models.sharded:  # last: the others are copies of it
        shard(policy.model)
    if config.model.compile:
        trunk = models.critic.trunk if models.critic else None
        for one in filter(None, (policy, models.reference, *models.teachers.values())):
            one.no_trees = "compiled layers"  # which unpacking rows would split in two
            _compile(one.model)
            one.compiled = True
        if trunk is not None:
            _compile(trunk)
    return models


def _compile(model: Any) -> None:
    """Compile the layers, which are alike, so that the first compilation serves all of them."""
    from torch import _dynamo
    from transformers.modeling_layers import GradientCheckpointingLayer

    # One for each network, with a gradient and without, with a mask and without.
    _dynamo.config.recompile_limit = max(32, _dynamo.config.recompile_limit)
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    for layer in layers or [trunk_of(model)]:
        layer.compile(dynamic=True)


def build_policy(config: Config) -> Policy:
    """The model and tokenizer of a recipe, on its device."""
    m, r = config.model, config.rollout
    folder = resolve_path(m.path, code=m.trust_remote_code)
    device = pick_device(config.device)
    if device.index is not None and device.type == "cuda":  # or libraries set up cuda:0 as well
        torch.cuda.set_device(device)
    tokenizer = load_tokenizer(folder, trust_remote_code=m.trust_remote_code, chat_args=m.chat_args)
    model = load_causal_lm(
        folder, dtype=m.dtype, attention=m.attention, trust_remote_code=m.trust_remote_code
    )
    check_vocabulary(folder, model.config, tokenizer)
    base, note = origin(str(m.path), folder)
    _prepare(model, config, base)
    policy = Policy(
        model.to(device),
        tokenizer,
        temperature=r.temperature,
        top_k=r.top_k,
        top_p=r.top_p,
        autocast=m.autocast == "bfloat16" or (m.autocast == "auto" and device.type == "cuda"),
    )
    method = quantized_by(load_config(folder, trust_remote_code=m.trust_remote_code))
    if method in DEQUANTIZED:
        policy.notes.append(f"{folder}: transformers converted its {method} weights to {m.dtype}")
    policy.notes += [note] if note else []
    policy.recompute = m.gradient_checkpointing
    policy.weights = checksum(folder)
    policy.static = r.cache == "static" or (r.cache == "auto" and device.type == "cuda")
    threads.choose(config.run.threads, policy.model)
    return policy


def _prepare(model: Any, config: Config, base: str) -> None:
    """Add adapters and gradient checkpointing if the recipe sets them."""
    m = config.model
    if m.lora.rank:
        targets = None if m.lora.targets is None else list(m.lora.targets)
        rank, alpha = m.lora.rank, m.lora.alpha
        add_lora(model, rank=rank, alpha=alpha, targets=targets, base=base, seed=config.seed)
    if m.gradient_checkpointing:
        recompute.allow(model)


def _teacher(plan: Plan, domain: str | None, policy: Policy, notes: list[str]) -> Policy:
    """The frozen teacher of a domain: it scores tokens with the policy's temperature and
    precision."""
    m = plan.recipe.config.model
    key = "teacher.path" if domain is None else f"teacher.domains: {domain}"
    folder = resolve_path(plan.teachers[domain], key, code=m.trust_remote_code)
    _same_tokens(policy, folder, key, m.trust_remote_code)
    model = load_causal_lm(
        folder, dtype=m.dtype, attention=m.attention, trust_remote_code=m.trust_remote_code
    )
    check_vocabulary(folder, model.config, policy.tokenizer)
    teacher = Policy(
        model.to(policy.device).requires_grad_(False),
        policy.tokenizer,
        temperature=policy.temperature,
        autocast=policy.autocast,
    )
    if "teacher_kl" in plan.needs and teacher.vocabulary != policy.vocabulary:
        raise ModelError(
            f"{key}: {folder} has {teacher.vocabulary} logits but the policy has "
            f"{policy.vocabulary}, so KL over the whole vocabulary (teacher_kl) is undefined"
        )
    if teacher.limit:
        teacher.limit = (teacher.limit[0], teacher.limit[1].replace("model", "teacher", 1))
    if not set(policy.eos_ids) & set(teacher.eos_ids):
        theirs, ours = (
            " or ".join(token_name(policy.tokenizer, i) for i in one.eos_ids)
            for one in (teacher, policy)
        )
        notes.append(
            f"the teacher ends a response with {theirs} but the policy ends it with {ours}, so the "
            "teacher's probability of ending a response means little"
        )
    return teacher


def _same_tokens(policy: Policy, folder: Path, key: str, code: bool) -> None:
    """Refuse a model that cannot read the policy's tokens, or ids without a token. It may have
    more: `rlzoo reward train` adds a padding token if there is none."""
    theirs = load_tokenizer(folder, trust_remote_code=code)
    if not policy.tokenizer.get_vocab().items() <= theirs.get_vocab().items():
        raise ModelError(f"{key}: {folder} and the policy have different tokenizers")
    rows = load_config(folder, trust_remote_code=code).get_text_config().vocab_size
    if rows < policy.vocabulary:
        raise ModelError(
            f"{key}: {folder} has embeddings of {rows} ids, but the policy may sample "
            f"{policy.vocabulary}"
        )


def critic_folder(plan: Plan) -> str | None:
    """The folder that `critic.init` names directly or through a reward; None for the actor's."""
    init = plan.recipe.config.critic.init
    if init == "actor":
        return None
    if init in plan.rewards:
        return str(plan.rewards[init][1].options["path"])
    return init


def _critic_start(plan: Plan, policy: Policy) -> Any:
    name = critic_folder(plan)
    if name is None:
        return None
    config = plan.recipe.config
    m = config.model
    folder = resolve_path(name, "critic.init", code=m.trust_remote_code)
    trunk, weight = load_trunk(folder, dtype=m.dtype, trust_remote_code=m.trust_remote_code)
    _same_tokens(policy, folder, "critic.init", m.trust_remote_code)
    _prepare(trunk, config, origin(name, folder)[0])
    return trunk.to(policy.device), weight
