"""Batches for the bridges, and rlzoo called on them by hand: no adapter is used here."""

import torch

CASES = ("single_turn", "ragged", "multi_turn", "dense", "group_of_one")
ROWS, STEPS = 12, 9
IDS = (7, 7, 7, 7, 3, 3, 3, 11, 11, 11, 5, 5)
OPTIONS = {
    "gae_decoupled": {"lam_actor": 0.8, "lam_critic": 1.0},
    "n_step": {"n": 3},
    "pkpo": {"k": 2},
    "opo": {"leave_one_out": True},
    "turn_gae": {"token_lam": 0.7},
}
SCORE_WEIGHTS = [1.0, 0.5]


def make(case: str, seed: int = 0) -> dict[str, torch.Tensor]:
    """Float64 columns (12, 9) of four groups, rows shuffled; zeros off the mask."""
    g = torch.Generator().manual_seed(100 * seed + len(case))

    def normal(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=g)

    length = torch.randint(2, STEPS + 1, (ROWS,), generator=g)
    mask = torch.arange(STEPS) < length[:, None]
    if case == "single_turn":
        mask[:] = True
    if case == "multi_turn":  # observations inside the response; a row ends with an action
        mask &= torch.rand(ROWS, STEPS, generator=g) < 0.6
        mask[:, 0] = True
        mask[torch.arange(ROWS), length - 1] = True
    mask = mask.double()
    last = (mask * torch.arange(1, STEPS + 1)).argmax(1)
    outcome = torch.randint(0, 2, (ROWS,), generator=g).double()
    rewards = torch.nn.functional.one_hot(last, STEPS).double() * outcome[:, None]
    if case == "dense":
        rewards = normal(ROWS, STEPS)
    ids = torch.tensor(IDS if case != "group_of_one" else (*IDS[:11], 9))
    old = torch.log_softmax(normal(ROWS, STEPS, 5), -1)
    token = torch.randint(5, (ROWS, STEPS, 1), generator=g)
    old_log_probs = old.gather(-1, token)[..., 0]
    x = {
        "rewards": rewards,
        "values": normal(ROWS, STEPS),
        "old_log_probs": old_log_probs,
        "log_probs": old_log_probs + 0.4 * normal(ROWS, STEPS),
        "sampler_log_probs": old_log_probs + 0.1 * normal(ROWS, STEPS),
        "ref_log_probs": old_log_probs + 0.3 * normal(ROWS, STEPS),
        "sum_pi_squared": old.exp().square().sum(-1),
        "advantages": normal(ROWS, STEPS),
    }
    x = {name: t * mask for name, t in x.items()}
    x |= {"response_mask": mask, "group_ids": ids, "outcome": outcome, "last": last}
    x |= {"greedy_scores": normal(ROWS), "score_components": normal(ROWS, len(SCORE_WEIGHTS))}
    order = torch.randperm(ROWS, generator=g)
    return {name: t[order].contiguous() for name, t in x.items()}


def columns(x: dict[str, torch.Tensor], rewards=None) -> dict[str, torch.Tensor]:
    """All that an estimator may ask for, written out."""
    mask = x["response_mask"]
    rewards = x["rewards"] if rewards is None else rewards
    total = (rewards * mask).sum(1)
    before = torch.cat([torch.zeros_like(mask[:, :1]), mask[:, :-1]], 1)
    return x | {
        "rewards": rewards,
        "scores": rewards,
        "sequence_rewards": total,
        "sequence_scores": total,
        "bootstrap_values": torch.zeros_like(total),
        "turn_ids": (mask > before).long().cumsum(1) * mask.long(),
        "score_weights": torch.tensor(SCORE_WEIGHTS, dtype=torch.float64),
    }


def options(component, gamma=0.97, lam=0.9) -> dict[str, float]:
    """An estimator's options here, its gamma and lam those that the trainer is given."""
    own = {k: v for k, v in (("gamma", gamma), ("lam", lam)) if k in component.options}
    return own | OPTIONS.get(component.name, {})


def gap(a: torch.Tensor, b: torch.Tensor) -> float:
    return (a - b).abs().max().item() if a.numel() else 0.0
