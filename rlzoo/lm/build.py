"""Builds the models that a plan needs, and no others."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from rlzoo.accel import recompute
from rlzoo.accel.decode import Decoder
from rlzoo.accel.device import choose_threads, pick_device
from rlzoo.accel.engine import Engine
from rlzoo.accel.passes import Passes
from rlzoo.accel.ranks import open_ranks
from rlzoo.accel.sampling_copy import SamplingCopy, sampling_dtypes
from rlzoo.accel.shard import shard
from rlzoo.errors import ModelError
from rlzoo.lm.critic import Critic, freeze
from rlzoo.lm.loading import (
    DEQUANTIZED,
    load_causal_lm,
    load_config,
    load_tokenizer,
    load_trunk,
    origin,
    quantized_by,
    resolve_path,
)
from rlzoo.lm.lora import add_lora
from rlzoo.lm.policy import Policy
from rlzoo.lm.probe import enforce, layout
from rlzoo.lm.prompts import PromptFormat, drawn
from rlzoo.lm.weights import checksum
from rlzoo.lm.world import World
from rlzoo.mdp.rules import token_name
from rlzoo.plugin.border import border
from rlzoo.recipe.keys import Config
from rlzoo.recipe.plan import Plan


def build_world(plan: Plan) -> World:
    """The models that the plan needs, on the recipe's device; in each process of a run alike."""
    config = plan.recipe.config
    torch.manual_seed(config.seed)
    ranks = open_ranks(config.device)
    sharded = ranks.count > 1 and config.parallel.strategy == "shard"
    policy, prompt_format, notes = _with_prompts(plan, build_policy(config))
    # Found out by passes, before there is a copy or a shard.
    probed = enforce(policy, config.model.name or str(config.model.path))
    notes += probed.notes
    dtype, copied = sampling_dtypes(config, policy.device.type)
    copy = SamplingCopy(policy.model, getattr(torch, copied)) if copied else None
    decoder = Decoder(static=probed.static, dtype=dtype, copy=copy, notes=notes)
    policy = replace(policy, traits=probed.traits, decoder=decoder)
    reference = policy.frozen_copy() if plan.reference else None
    teachers = {domain: _teacher(plan, domain, policy, notes) for domain in plan.teachers}
    critic = _critic(plan, policy) if plan.critic else None
    shared = critic is not None and critic.trunk is None
    if critic is not None and shared:
        policy = replace(policy, value_head=critic.head)
    others = [p.model for p in (reference, *teachers.values()) if p and p.model is not policy.model]
    critic_parts = [] if critic is None or shared else [critic.trunk, critic.head]
    # The policy last: the others are copies of it.
    for network in [*others, *critic_parts, policy.model] if sharded else ():
        shard(network)
    engine = Engine(
        policy, Passes(config.train, ranks, sharded, notes), reference, teachers, critic,
        stats=_stats(plan),
        entropy_grad=config.actor.entropy_coef > 0 or "entropy" in plan.needs,
    )  # fmt: skip
    weights = checksum(resolve_path(config.model.path, code=config.model.trust_remote_code))
    return World(plan, engine, prompt_format, config.seed, probed.findings, weights)


def world_around(plan: Plan, policy: Policy) -> World:
    """A world whose only network is `policy`, for evaluations."""
    config = plan.recipe.config
    policy, prompt_format, notes = _with_prompts(plan, policy)
    policy = replace(policy, traits=layout(policy))
    engine = Engine(policy, Passes(config.train, notes=notes), stats=_stats(plan))
    return World(plan, engine, prompt_format, config.seed)


def _stats(plan: Plan) -> tuple[str, ...]:
    return ("entropy", *(n for n in ("observation_nll", "log_pi") if n in plan.needs))


def _with_prompts(plan: Plan, policy: Policy) -> tuple[Policy, PromptFormat, list[str]]:
    """The policy with what ends its responses to the task's prompts, how these become tokens, and
    notes for the user. Raises ModelError where prompts do not fit the model."""
    config, task, name = plan.recipe.config, plan.task, plan.task_name
    model, tokenizer, notes = config.model, policy.tokenizer, list(policy.decoder.notes)
    prompt_format = PromptFormat(tokenizer, model.chat, model.system)
    prompts = drawn(task, name, "train")
    notes += prompt_format.examined(prompts, model.chat_args)
    if unread := prompt_format.unread(prompts):
        notes.append(unread)
    ends = [] if config.rollout.ignore_eos else prompt_format.ends(task, name, policy.eos_ids)
    for i in set(ends).difference(policy.eos_ids):
        token = tokenizer.convert_ids_to_tokens(i)
        notes.append(f"responses also end with {token}, the chat template's end of turn")
    most, (longest, called) = config.rollout.max_new_tokens, policy.limit or (0, "")
    most = max(most, config.eval.max_new_tokens or 0)
    room = max(0, longest - most)
    if fit := plan.abilities.fit:  # a data task leaves out prompts that are too long for the model
        with border(f"task {name!r}: fit"):
            left = room if called else None
            note = fit(lambda prompt: len(prompt_format.encode(prompt)), left)
        notes += [note] if note else []
    for split in ("train", "test") if called else ():
        lengths = [len(prompt_format.encode(prompt)) for prompt in drawn(task, name, split)]
        if max(lengths) > room:
            raise ModelError(
                f"rollout.max_new_tokens={most} leaves {room} of {called} for a prompt; "
                f"{sum(n > room for n in lengths)} of {len(lengths)} {split} prompts of task "
                f"{name!r} are longer, up to {max(lengths)} tokens"
            )
    decoder = Decoder(static=policy.decoder.static, notes=notes)
    return replace(policy, eos_ids=ends, stops=plan.stops, decoder=decoder), prompt_format, notes


def _critic(plan: Plan, policy: Policy) -> Critic:
    wide = "value_logits" in plan.needs or "value_support" in plan.needs
    c = plan.recipe.config.critic
    dtype = torch.promote_types(policy.model.dtype, torch.float32)
    support = torch.linspace(c.low, c.high, c.bins, dtype=dtype) if wide else None
    shared = c.trunk == "shared"
    start = None if shared else _critic_start(plan, policy)
    critic = Critic(policy, support, shared=shared, start=start)
    freeze(critic, c.freeze)
    return critic


def build_policy(config: Config) -> Policy:
    """The model and tokenizer of a recipe, on its device."""
    m, r = config.model, config.rollout
    folder = resolve_path(m.path, code=m.trust_remote_code)
    device = pick_device(config.device)
    if device.index is not None and device.type == "cuda":  # or libraries set up cuda:0 as well
        torch.cuda.set_device(device)
    tokenizer = load_tokenizer(
        folder,
        trust_remote_code=m.trust_remote_code,
        chat_args=m.chat_args,
        ends=not r.ignore_eos,
    )
    model = _loaded(folder, config, tokenizer)
    base, note = origin(str(m.path), folder)
    _prepare(model, config, base)
    notes = [note] if note else []
    method = quantized_by(load_config(folder, trust_remote_code=m.trust_remote_code))
    if method in DEQUANTIZED:
        notes.insert(0, f"{folder}: transformers converted its {method} weights to {m.dtype}")
    static = r.cache == "static" or (r.cache == "auto" and device.type == "cuda")
    policy = Policy.of(
        model.to(device),
        tokenizer,
        temperature=r.temperature,
        top_k=r.top_k,
        top_p=r.top_p,
        min_new_tokens=r.min_new_tokens,
        replay=r.replay == "kept",
        autocast=m.autocast == "bfloat16" or (m.autocast == "auto" and device.type == "cuda"),
        recompute=m.gradient_checkpointing,
        decoder=Decoder(static=static, notes=notes),
    )
    choose_threads(config.run.threads, policy.model)
    return policy


def _loaded(folder: Path, config: Config, tokenizer: Any) -> Any:
    """The causal LM in `folder`. Raises ModelError if it has no embedding for one of the ids."""
    m = config.model
    model = load_causal_lm(
        folder, dtype=m.dtype, attention=m.attention, trust_remote_code=m.trust_remote_code
    )
    rows, highest = model.config.get_text_config().vocab_size, max(tokenizer.get_vocab().values())
    if highest >= rows:
        raise ModelError(
            f"{folder}: the tokenizer does not match the model: its ids go up to {highest}, but "
            f"the model has only {rows} (0 to {rows - 1})"
        )
    return model


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
    model = _loaded(folder, plan.recipe.config, policy.tokenizer)
    teacher = Policy.of(
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
    teacher = replace(teacher, traits=layout(teacher))
    if teacher.limit:
        limit = teacher.limit[0], teacher.limit[1].replace("model", "teacher", 1)
        teacher = replace(teacher, limit=limit)
    if policy.eos_ids and not set(policy.eos_ids) & set(teacher.eos_ids):
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
    more: `rlzoo model reward` adds a padding token if there is none."""
    theirs = load_tokenizer(folder, trust_remote_code=code, ends=bool(policy.eos_ids))
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
