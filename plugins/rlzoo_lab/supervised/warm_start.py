"""Makes a base model: a small causal LM that has learned its tasks' format and is sometimes
correct.

RL needs correct answers to reinforce. The warm start trains on demonstrations of which, in the end,
only a share `right` is correct. The model therefore samples about that share of correct answers,
although its most likely answer is nearly always correct. The spec (`configs/base/`) names the tasks
and their shares; this file does not depend on them.
"""

import math

import torch

from rlzoo.mdp.batch import right_pad
from rlzoo.mdp.rules import demonstration, draw_examples
from rlzoo.plugin.protocols import abilities
from rlzoo_lab.supervised.fit import IGNORED
from rlzoo_lab.supervised.tiny import EOS


def warm_start(model, tokenizer, spec, tasks, progress=None) -> None:
    """AdamW, cosine schedule; the loss is on the response tokens, EOS included. Ends early
    where `progress` returns True."""
    generator = torch.Generator().manual_seed(spec["seed"])
    steps, warmup = spec["steps"], max(1, spec["steps"] // 20)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=spec["lr"], betas=(0.9, 0.98), weight_decay=0.01
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda i: min((i + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * i / steps)),
    )
    model.train()
    for step in range(steps):
        # Mostly wrong labels teach slowly, so all are right in the first third of the steps; the
        # share falls in the second, and in the last the model has only to unlearn its certainty.
        clean = min(1.0, max(0.0, 2 - 3 * step / steps))
        share = clean + (1 - clean) * spec.get("right", 0.0)
        pairs = demonstrations(spec, tasks, share, generator)
        input_ids, labels = encode(tokenizer, pairs)
        # Pads are on the right, where causal attention never looks: no attention mask is needed.
        loss = model(input_ids=input_ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        if progress and progress(step + 1, steps, loss.item()):
            break
    model.eval()


def demonstrations(spec, tasks, share, generator) -> list[tuple[str, str | list[str]]]:
    """A batch of (prompt, response or turns); each one is right with probability `share`, or the
    `right` of its part of the mix."""
    weights = torch.tensor([float(part["weight"]) for part in spec["mix"].values()])
    picks = torch.multinomial(weights, spec["batch"], replacement=True, generator=generator)
    counts = torch.bincount(picks, minlength=len(weights)).tolist()
    pairs = []
    for (label, part), count in zip(spec["mix"].items(), counts, strict=True):
        task, part_share = tasks[label], part.get("right", share)
        for example in draw_examples(task, label, "train", count, generator):
            right, wrong = demonstration(task, label, example, generator)
            chosen = torch.rand((), generator=generator) < part_share
            response = right if chosen else wrong
            if not isinstance(response, str):
                response = with_ends(response, abilities(task).stops)
            pairs.append((example.prompt, response))
    return pairs


def with_ends(turns: list[str], stops: tuple[str, ...]) -> list[str]:
    """The turns of a conversation with EOS after each of the policy's that no stop ends."""
    return [t if i % 2 or t.endswith(stops) else t + EOS for i, t in enumerate(turns)]


def encode(tokenizer, pairs) -> tuple[torch.Tensor, torch.Tensor]:
    """input_ids (B, L), right-padded, and labels (B, L) that leave out prompts, pads, and what the
    environment writes in a conversation."""
    texts = []
    for prompt, response in pairs:
        turns = [response + EOS] if isinstance(response, str) else response
        texts.append([prompt, *turns])
    ids_of = iter(tokenizer([text for row in texts for text in row])["input_ids"])
    rows, labels = [], []
    for row in texts:
        parts = [next(ids_of) for _ in row]
        rows.append([i for part in parts for i in part])
        # Prompt, policy, environment, policy, ...
        labels.append([i if k % 2 else IGNORED for k, part in enumerate(parts) for i in part])
    return right_pad(rows, tokenizer.pad_token_id)[0], right_pad(labels, IGNORED)[0]
