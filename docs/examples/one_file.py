"""PPO with GAE, and GRPO, for a language model in one file: torch and transformers, nothing else.

    python one_file.py ppo       # or grpo: the mean reward of a tiny model rises within a minute

Read it from top to bottom: a batch is sampled, scored and turned into advantages, and the update
learns from it. `train_step` does what `rlzoo run` does at each step of `recipe=ppo_gae` and of
`recipe=grpo`: given the same weights and noise, both end with the same weights
(tests/docs/test_one_file.py). It leaves out what changes no number: a KV cache, packed rows,
micro-batches, several processes, checkpoints, metrics.

Shapes: B responses (prompts x samples), P prompt tokens (padded on the left), T response tokens
(padded on the right). Index t of a (B, T) tensor is the state before response token t and the
choice of that token.
"""

import copy
import sys

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

GAMMA, LAM = 1.0, 0.95  # discount; GAE's trade between bias (0) and variance (1)
CLIP, VALUE_CLIP, KL_COEF, MINIBATCHES, MAX_GRAD_NORM = 0.2, 0.2, 0.01, 4, 1.0


class Critic(nn.Module):
    """V(s_t) for each response token: a copy of the policy's trunk, and a linear head from 0."""

    def __init__(self, policy):
        super().__init__()
        self.trunk = copy.deepcopy(policy.base_model)
        self.head = nn.Linear(policy.config.hidden_size, 1, dtype=policy.dtype)
        for weight in self.head.parameters():
            nn.init.zeros_(weight)

    def forward(self, batch):
        hidden = self.trunk(**whole_rows(batch)).last_hidden_state
        width = batch["prompt_ids"].shape[1]  # V(s_t) is read before token t: one place to the left
        return self.head(hidden[:, width - 1 : -1]).squeeze(-1)  # (B, T)


def whole_rows(batch):
    """Prompt and response as one row, with the positions that its real tokens have."""
    ids = torch.cat([batch["prompt_ids"], batch["response_ids"]], 1)
    mask = torch.cat([batch["prompt_mask"], batch["response_mask"]], 1)
    places = (mask.cumsum(1) - 1).clamp(min=0).long()
    return {"input_ids": ids, "attention_mask": mask, "position_ids": places, "use_cache": False}


def log_probs(policy, batch):
    """log pi(token t | what is before it), (B, T)."""
    width = batch["prompt_ids"].shape[1]
    log_pi = policy(**whole_rows(batch)).logits[:, width - 1 : -1].log_softmax(-1)  # (B, T, V)
    return log_pi.gather(-1, batch["response_ids"][..., None]).squeeze(-1)


@torch.no_grad()
def sample(policy, prompts, uniforms, eos, pad):
    """Responses to B lists of ids; token t of row i is drawn at uniforms[i, t] in [0, 1): it is
    where the cumulative distribution passes that number."""
    width = max(map(len, prompts))
    batch = {
        "prompt_ids": torch.tensor([[pad] * (width - len(p)) + p for p in prompts]),
        "prompt_mask": torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts]),
    }
    empty = torch.zeros(len(prompts), 0, dtype=torch.long)
    batch |= {"response_ids": empty, "response_mask": empty}
    live = torch.ones(len(prompts), 1, dtype=torch.bool)  # rows that have not ended
    for u in uniforms.T.contiguous():
        p = policy(**whole_rows(batch)).logits[:, -1].double().softmax(-1)  # (B, V)
        token = torch.searchsorted(p.cumsum(-1), u[:, None], right=True).clamp(max=p.shape[1] - 1)
        token = torch.where(live, token, pad)
        batch["response_ids"] = torch.cat([batch["response_ids"], token], 1)
        batch["response_mask"] = torch.cat([batch["response_mask"], live.long()], 1)
        live = live & (token != eos)
    return batch


def at_last_token(scores, mask):
    """Scores (B,) of whole responses, at each response's last token, (B, T)."""
    last = F.one_hot(mask.sum(1) - 1, mask.shape[1])
    return last.to(scores.dtype) * scores[:, None]


def gae(rewards, values, mask):
    """A_t = delta_t + gamma lam A_{t+1}, delta_t = r_t + gamma V(s_{t+1}) - V(s_t), (B, T)."""
    advantages = torch.zeros_like(values)
    after = value_after = torch.zeros_like(values[:, 0])
    for t in reversed(range(values.shape[1])):
        delta = rewards[:, t] + GAMMA * value_after - values[:, t]
        after = advantages[:, t] = mask[:, t] * (delta + GAMMA * LAM * after)
        value_after = values[:, t]  # 0 where there is no token
    return advantages


def whiten(x, mask):
    """Mean 0 and variance 1 over the batch's real tokens."""
    real = x[mask.bool()]
    return mask * (x - real.mean()) / (real.var(correction=0) + 1e-8).sqrt()


def group_advantages(scores, samples):
    """GRPO: a response's score, standardized among the `samples` responses to its prompt, (B,)."""
    x = scores.view(-1, samples)
    return ((x - x.mean(1, keepdim=True)) / (x.std(1, keepdim=True) + 1e-6)).flatten()


def policy_loss(batch, now):
    """PPO's clipped surrogate per token: no gradient once the ratio has left [1 - CLIP, 1 + CLIP]
    in the direction of the advantage."""
    ratio = (now - batch["old_log_probs"]).exp()
    advantages = batch["advantages"]
    return -torch.minimum(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)


def value_loss(batch, now):
    """Squared error to the return, of the worse of V and of V within VALUE_CLIP of the old V."""
    near = batch["values"] + (now - batch["values"]).clamp(-VALUE_CLIP, VALUE_CLIP)
    return 0.5 * torch.maximum(
        (now - batch["returns"]).square(), (near - batch["returns"]).square()
    )


def learn(network, optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), MAX_GRAD_NORM)
    optimizer.step()


def train_step(policy, reference, critic, optimizers, prompts, reward, uniforms, order, eos, pad):
    """Sample, score, and learn: PPO with a critic, GRPO where `critic` is None. Returns the mean
    score.

    prompts: lists of ids. reward(i, ids): the score of a response to prompt i. uniforms: (B, T)
    noise, B = prompts x samples. order: a permutation of the B rows.
    """
    samples = len(uniforms) // len(prompts)
    rows = torch.arange(len(prompts)).repeat_interleave(samples).tolist()
    batch = sample(policy, [prompts[i] for i in rows], uniforms, eos, pad)
    mask = batch["response_mask"]
    said = [ids[m.bool()].tolist() for ids, m in zip(batch["response_ids"], mask, strict=True)]
    with torch.no_grad():
        batch["old_log_probs"] = mask * log_probs(policy, batch)
        batch["ref_log_probs"] = mask * log_probs(reference, batch)
        kl = batch["old_log_probs"] - batch["ref_log_probs"]  # k1 of each token
        scores = torch.tensor([*map(reward, rows, said)], dtype=kl.dtype)
        if critic is None:
            batch["advantages"] = mask * group_advantages(scores, samples)[:, None]
        else:
            batch["values"] = mask * critic(batch)
            rewards = at_last_token(scores, mask) - KL_COEF * kl
            raw = gae(rewards, batch["values"], mask)
            batch["returns"] = raw + batch["values"]
            batch["advantages"] = whiten(raw, mask)
    for part in order.tensor_split(MINIBATCHES) if critic is not None else ():
        some = {name: x[part] for name, x in batch.items()}
        errors = value_loss(some, critic(some))
        weights = some["response_mask"] / some["response_mask"].sum()  # the mean over tokens
        learn(critic, optimizers["critic"], (weights * errors).sum())
    for part in order.tensor_split(MINIBATCHES):
        some = {name: x[part] for name, x in batch.items()}
        now, real = log_probs(policy, some), some["response_mask"]
        loss = policy_loss(some, now)
        if critic is None:  # GRPO: KL (k3) in the loss; the mean over responses of token means
            gap = some["ref_log_probs"] - real * now
            loss = loss + KL_COEF * (gap.expm1() - gap)
            weights = real / (real.sum(1, keepdim=True) * len(real))
        else:
            weights = real / real.sum()
        learn(policy, optimizers["actor"], (weights * loss).sum())
    return scores.mean().item()


def main(algorithm="ppo", steps=100):
    """Learn to repeat a digit and stop: prompt `d =`, right is `d <eos>`."""
    pad, eos, equals, digits = 0, 1, 2, range(3, 13)
    torch.manual_seed(0)
    policy = GPT2LMHeadModel(GPT2Config(vocab_size=13, n_embd=32, n_layer=2, n_head=4))
    policy.eval()  # dropout would move the ratio away from 1
    reference = copy.deepcopy(policy).requires_grad_(False)
    critic = Critic(policy) if algorithm == "ppo" else None
    networks = {"actor": policy} | ({"critic": critic} if critic else {})
    adamw = {"lr": 1e-3, "eps": 1e-6, "weight_decay": 0.0}
    optimizers = {n: torch.optim.AdamW(x.parameters(), **adamw) for n, x in networks.items()}
    for step in range(steps):
        prompts = [[digits[i], equals] for i in torch.randint(10, (32,)).tolist()]
        score = train_step(
            policy, reference, critic, optimizers, prompts,
            lambda i, ids, asked=prompts: float(ids == [asked[i][0], eos]),
            torch.rand(32 * 8, 3), torch.randperm(32 * 8), eos, pad,
        )  # fmt: skip
        if step % 10 == 0 or step == steps - 1:
            print(f"step {step:3}  mean reward {score:.3f}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:2])
