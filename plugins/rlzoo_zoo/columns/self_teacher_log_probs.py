"""SDPO's self-teacher: the policy's log-probs of its own tokens, given a correct answer."""

from string import Formatter
from typing import Annotated

import torch

from rlzoo import Range, RlzooError, component

TEMPLATE = (
    "{prompt}\nCorrect solution:\n\n{solution}\n\n\n\nCorrectly solve the original question.\n"
)


def refuse(*, template, **_):
    try:
        known = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError as error:
        raise ValueError(f"template: {error}") from None
    if known != {"prompt", "solution"}:
        raise ValueError("template: must contain {prompt} and {solution}, and no other field")


@component("column", shape="BT", check=refuse)
def self_teacher_log_probs(
    policy,
    reference,
    tokenizer,
    prompts,
    messages,
    responses,
    group_ids,
    sequence_scores,
    prompt_ids,
    prompt_mask,
    response_ids,
    response_mask,
    response_attention,
    old_log_probs,
    *,
    mix: Annotated[float, Range(0, 1)] = 0.05,
    success: float = 1.0,
    template: str = TEMPLATE,
    rows: Annotated[int, Range(1)] = 32,
):
    """log q of each token (B, T), where q is the policy with a correct answer of the group in its
    prompt.

    The answer is the first other response of the group whose `sequence_scores` (B,) are at least
    `success`; `template` puts it after the prompt (in a chat, after the last message's text). If
    there is none, q is the policy and the column equals `old_log_probs`, so there is no signal. The
    logits of q are (1 - mix) times those of the frozen reference plus mix times those of the
    policy, both with the longer prompt, at the run's temperature; this is the authors'
    "trust-region" teacher. Their moving average of weights and their feedback from an environment
    are not implemented. They remove the <think> part of a solution; this column keeps it. `rows`
    rows pass through the models at a time. It fails when the model cannot use an answer in its
    prompt.
    Source: Hübotter et al. 2026, arXiv:2601.20802; their code, lasgroup/SDPO.
    """
    shown = peers(group_ids.tolist(), (sequence_scores >= success).tolist())
    taught = [i for i, peer in enumerate(shown) if peer is not None]
    out = old_log_probs.clone()
    for start in range(0, len(taught), rows):
        part = taught[start : start + rows]
        ids, mask = left_padded(
            [encoded(tokenizer, prompts[i], messages[i], responses[shown[i]], template)
             for i in part], prompt_ids, prompt_mask)  # fmt: skip
        columns = {
            "prompt_ids": ids,
            "prompt_mask": mask,
            "response_ids": response_ids[part],
            "response_mask": response_mask[part],
            "response_attention": response_attention[part],
        }
        try:
            found = mixed_log_probs(policy, reference, columns, mix)
        except RlzooError as error:  # a row of prompt, solution and response is too long, say
            raise RlzooError(f"self_teacher_log_probs: with a solution shown, {error}") from None
        out[part] = found.to(out.dtype)
    return out * response_mask


def peers(groups, right):
    """The row of the first right response of each row's group that is another; None without."""
    of: dict[int, list[int]] = {}
    for i, group in enumerate(groups):
        if right[i]:
            of.setdefault(group, []).append(i)
    return [next((j for j in of.get(g, []) if j != i), None) for i, g in enumerate(groups)]


def encoded(tokenizer, prompt, messages, solution, template):
    """Token ids of a prompt with a solution."""
    from rlzoo.lm import opened  # here: it imports transformers

    plain = "\n".join(m["content"] for m in messages) == prompt
    asked = prompt if plain else messages[-1]["content"]
    said = template.format(prompt=asked, solution=solution)
    if not plain:
        chat = [*messages[:-1], {**messages[-1], "content": said}]
        said = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    ids = tokenizer(said, add_special_tokens=plain)["input_ids"]
    return opened(tokenizer, ids) if plain else ids


def left_padded(lists, prompt_ids, prompt_mask):
    """(ids, mask), both (b, P) of the kinds that the batch's prompts have."""
    width = max(map(len, lists))
    ids = prompt_ids.new_zeros(len(lists), width)
    mask = prompt_mask.new_zeros(len(lists), width)
    for i, one in enumerate(lists):
        ids[i, width - len(one) :] = prompt_ids.new_tensor(one)
        mask[i, width - len(one) :] = 1
    return ids, mask


def mixed_log_probs(policy, reference, columns, mix):
    """log softmax of the mixed logits at the response tokens, (b, T)."""
    if mix in (0.0, 1.0):
        return (policy if mix else reference).log_probs(columns)
    steps = columns["response_ids"].shape[1]
    theirs, ours = (p.logits(columns)[:, :-1] for p in (reference, policy))  # (b, t, V)
    wide = torch.promote_types(ours.dtype, torch.float32)
    theirs, ours = theirs.to(wide), ours.to(wide)
    mixed = (1 - mix) * theirs + mix * ours  # lerp is NaN at a logit of -inf
    log_q = (mixed / policy.temperature).log_softmax(-1)
    chosen = columns["response_ids"][:, : log_q.shape[1], None]
    found = log_q.gather(-1, chosen).squeeze(-1)
    return torch.nn.functional.pad(found, (0, steps - found.shape[1]))
