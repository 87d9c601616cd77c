"""The comparisons of the components that came after the league: see make_authors.py."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
from authors.batches import (
    BATCHES,
    ROWS,
    SAMPLES,
    STEPS,
    Columns,
    Pair,
    batches,
    leaf_of,
    loss_pairs,
    our_loss,
    ours,
)
from authors.sources import Source, assigned, branch, functions, instance
from torch import Tensor

from helpers.zoo import ZOO
from rlzoo.lm.policy import Policy
from rlzoo.ops import at_last_action
from rlzoo_lab.kit.checks.made_up import made_up

Text = Callable[[str], str]

ALGOS = "verl/trainer/ppo/core_algos.py"
RECIPE = "verl-project/verl-recipe", "48ea0a797fa29867ea0ad92aff7d284eec7d4be3"
FIPO = "qwenpilot/FIPO", "ee25452087c73ead4278b7f80766cac4fe18bf74"
REAL = "Red-RL/REAL", "1c30726a1c7606e717091b4b8cf1fc156a06039f"
RAFT = "RLHFlow/Minimal-RL", "e3b49f090ef4d4bd631f8c055e85f1f102e7dc1f"
NEMO = "NVIDIA-NeMo/RL", "7ea279abfbeb698b092856d0dab61e7cf39bc909"
PRIME_RL = "PrimeIntellect-ai/prime-rl", "559b44772e471d1538537b8805cc77f3824a5e64"
ESTIMATORS = Source(*NEMO, "nemo_rl/algorithms/advantage_estimator.py")
SOURCES = {
    "spo": Source(*RECIPE, "spo/spo_ray_trainer.py"),
    "history": Source(*RECIPE, "spo/spo_ray_trainer.py"),
    "gvpo": Source(*RECIPE, "gvpo/gvpo_core_algos.py"),
    "fipo": Source(*FIPO, ALGOS),
    "fipo verl": Source(*FIPO, "verl/utils/torch_functional.py"),
    "real": Source(*REAL, f"verl/{ALGOS}"),
    "real verl": Source(*REAL, "verl/verl/utils/torch_functional.py"),
    "raft": Source(*RAFT, ALGOS),
    "raft verl": Source(*RAFT, "verl/utils/torch_functional.py"),
    "ppo_nll": Source(*NEMO, "nemo_rl/algorithms/loss/loss_functions.py"),
    "ppo_nll mean": Source(*NEMO, "nemo_rl/algorithms/utils.py"),
    "gae_decoupled": ESTIMATORS,
    "gae_length_adaptive": ESTIMATORS,
    "mopd": ESTIMATORS,
    "bpco": Source("QPHutu/golden_critic", "14f5ef15e955b92639c6281483ca83c19ed2b126", ALGOS),
    "softmax_grpo": Source("jeffhernandez1995/softmaxgrpo",
                           "088c87cfa0b1b13faa0d377095d66c961ca87893", "softmaxgrpo/advantage.py"),
    "vargrad": Source("bbartoldson/TBA", "c6075e2feb666c84506875f2f615e7e0e920d6ea",
                      "src/tba_trainer_gsm8k.py"),
    "echo": Source("microsoft/echo-rl", "1792e309f30e3609581287b2804d127698d107b1",
                   "echo_rl/world_modeling/loss.py"),
    "observation_nll": Source(*PRIME_RL, "src/prime_rl/trainer/rl/loss.py"),
    "observation_nll tokens": Source(*PRIME_RL, "src/prime_rl/orchestrator/algo/echo.py"),
    "hl_gauss": Source("lionelblonde/hl-gauss-pytorch-jax",
                       "ed1456e1aa5aee049fe16e677c424a79c6b30070", "hl_gauss_pytorch.py"),
    "bce": Source("LLM360/miles", "71fc68cefd83b69dc911f44347c64679b4ee6355",
                  "miles/utils/value_head_utils.py"),
}  # fmt: skip


def verl(text: str) -> SimpleNamespace:
    return SimpleNamespace(**functions(text, "masked_sum masked_mean"))


# ---------------------------------------------------------------- estimators


class Rows:
    """As much of verl's DataProto as SPO's lines use."""

    def __init__(self, **batch: Tensor) -> None:
        self.batch = batch
        self.meta_info: dict[str, Any] = {}

    def select_idxs(self, rows: list[int]) -> "Rows":
        return Rows(**{name: x[rows] for name, x in self.batch.items()})

    @staticmethod
    def concat(parts: list["Rows"]) -> "Rows":
        return Rows(**{name: torch.cat([p.batch[name] for p in parts]) for name in parts[0].batch})


def spo_steps(text: Text) -> Iterator[tuple[Columns, dict[str, Any], Tensor]]:
    """Ten steps of SPO's trainer on 8 of 12 prompts: our columns, theirs, and our tracker's v.

    Both trackers see a policy that drifts by the same at each step. Ours measures it at the next
    rollout, theirs after the update: theirs is given the policy of that time.
    """
    lines, test = text("spo"), "self.config.trainer.spo.enable"
    rho = SimpleNamespace(type="kl", clip_lower=0.875)
    config = SimpleNamespace(trainer=SimpleNamespace(spo=SimpleNamespace(enable=True, rho=rho)))
    masks = {"compute_response_mask": lambda rows: rows.batch["mask"]}
    mean = verl(text("fipo verl")).masked_mean
    counts = functions(lines, "_get_spo_rho", DataProto=Rows, masked_mean=mean, **masks)
    for seed in range(BATCHES):
        draw = torch.Generator().manual_seed(seed)
        base = -4 * torch.rand(80, STEPS, generator=draw, dtype=torch.float64)
        drift = 0.004 * torch.randn(80, STEPS, generator=draw, dtype=torch.float64)
        clock = 0

        def log_probs(ids: Tensor, mask: Tensor) -> Tensor:
            return (base + clock * drift)[ids[:, 0].long(), : mask.shape[1]] * mask  # noqa: B023

        def theirs(rows: Rows) -> Rows:
            return Rows(old_log_probs=log_probs(rows.batch["ids"], rows.batch["mask"]))

        def stats(c: Columns) -> Columns:
            return {"log_probs": log_probs(c["response_ids"], c["response_mask"])}

        policy = SimpleNamespace(log_prob_stats=stats)
        own = SimpleNamespace(
            config=config, actor_rollout_wg=SimpleNamespace(compute_log_prob=theirs))  # fmt: skip
        own._get_spo_rho = lambda *given: counts["_get_spo_rho"](own, *given)  # noqa: B023
        texts = [f"prompt {k}" for k in range(12)]
        state: dict[str, Any] = {f"prompt2{n}": {} for n in ("protodata", "log_probs", "D")}
        state |= {f"prompt2{n}": dict.fromkeys(texts, 0.5) for n in ("alpha", "beta")}
        state["prompt2sampled_number"] = defaultdict(int)
        memory: dict[str, Any] = {}
        for clock in range(10):
            prompts = [texts[k] for k in torch.randperm(12, generator=draw)[:8].tolist()]
            length = torch.randint(1, STEPS + 1, (8, 1), generator=draw)
            mask = (torch.arange(STEPS) < length).double()
            ids = (8 * clock + torch.arange(8))[:, None].expand(8, STEPS)
            right = (torch.rand(8, generator=draw) < 0.5).double()
            right[:2] = torch.tensor([0.0, 1.0])
            found = ZOO.columns["history"].function(
                policy, memory, prompts, ids, mask, ids, mask, mask, log_probs(ids, mask), right,
            )  # fmt: skip
            space = branch(
                lines, test, "p_hats", self=own, micro_prompts=prompts, batch=Rows(mask=mask),
                reward_tensor=at_last_action(right, mask), metrics={}, **masks, **state,
            )  # fmt: skip
            columns = {"sequence_rewards": right, "response_mask": mask}
            yield columns, space, found
            kept = Rows(ids=ids, mask=mask)
            space = branch(lines, test, "rho * alpha",
                           **{**space, "spo_log_prob_batch_backup": kept})  # fmt: skip
            state = {name: space[name] for name in state}


def spo(text: Text) -> Iterator[Pair]:
    for columns, space, _ in spo_steps(text):
        own = ours("spo", {**columns, "history": space["p_hats"]})
        yield "value", own, space["advantages"]


def history(text: Text) -> Iterator[Pair]:
    for _, space, found in spo_steps(text):
        yield "value", found, space["p_hats"]


def softmax_grpo(text: Text) -> Iterator[Pair]:
    theirs = functions(text("softmax_grpo"), "softmax_advantages")["softmax_advantages"]
    for c in batches():
        for tau in (0.1, 0.3, 5.0):
            found = theirs(c["sequence_rewards"].view(-1, SAMPLES), tau).view(-1, 1)
            yield "value", ours("softmax_grpo", c, tau=tau), found * c["response_mask"]


def raft(text: Text) -> Iterator[Pair]:
    """Scores of 1, 0 and -1; their loss without a ratio (RAFT) on both."""
    names = "agg_loss compute_policy_loss_vanilla compute_raft_outcome_advantage"
    space = functions(text("raft"), names, verl_F=verl(text("raft verl")))
    for c in batches():
        scores = c["sequence_scores"] - (c["sequence_scores"] == 0) * (torch.arange(ROWS) % 2)
        mask = c["response_mask"]
        found = space["compute_raft_outcome_advantage"](at_last_action(scores, mask), mask)[0]
        advantages = ours("raft", {**c, "sequence_scores": scores})
        yield "value", advantages, found
        leaf, columns = leaf_of({**c, "advantages": advantages})
        loss = space["compute_policy_loss_vanilla"](
            c["old_log_probs"], leaf, found, mask, cliprange=0.2)[0]  # fmt: skip
        yield from loss_pairs(our_loss("reinforce", columns), loss, leaf)


def in_the_end(c: Columns) -> Columns:
    """Without truncation, and with the score at the last action: what NeMo-RL's PPO has."""
    rewards = at_last_action(c["sequence_scores"], c["response_mask"])
    return {**c, "rewards": rewards, "bootstrap_values": torch.zeros(ROWS).double()}


def nemo_gae(text: Text, name: str, given: dict[str, Any], own: dict[str, Any]) -> Iterator[Pair]:
    theirs = instance(
        text(name), "GeneralizedAdvantageEstimator", "compute_advantage _compute_gae"
        " _build_token_level_rewards _resolve_lambda_policy _resolve_lambda_value",
        {"gae_lambda": 0.9, "gae_gamma": 0.99, "normalize_advantages": False, "kl_coef": 0.0,
         "use_kl_in_reward": False, "gae_lambda_policy": None, "length_adaptive_alpha": 0.0,
         "gae_lambda_value": 1.0, **given})  # fmt: skip
    for c in map(in_the_end, batches()):
        mask = c["response_mask"]
        found = theirs.compute_advantage(None, c["sequence_scores"], mask, c["values"])
        got = ZOO.estimators[name](c, gamma=0.99, lam_critic=1.0, **own)
        yield "value", got["advantages"], found[0]
        yield "value", got["returns"], found[1] * mask


def gae_decoupled(text: Text) -> Iterator[Pair]:
    for lam in (0.0, 0.95):
        yield from nemo_gae(
            text, "gae_decoupled", {"gae_lambda_policy": lam}, {"lam_actor": lam})  # fmt: skip


def gae_length_adaptive(text: Text) -> Iterator[Pair]:
    for alpha in (0.05, 0.4):
        given = {"length_adaptive_alpha": alpha}
        yield from nemo_gae(text, "gae_length_adaptive", given, {"alpha": alpha})


def bpco(text: Text) -> Iterator[Pair]:
    """Its advantages on responses of at least 1 / alpha tokens, its targets, and the gradient of
    its loss, which holds no ratio down."""
    names = "compute_lagae_advantage_return agg_loss compute_policy_loss_dppo_tv"
    theirs = functions(text("bpco"), names, verl_F=verl(text("fipo verl")), AlgoConfig=type(None))
    config = SimpleNamespace(clip_ratio_low=0.2, clip_ratio_high=0.1, clip_ratio=0.0,
                             get=lambda _, default: default, global_batch_info={})  # fmt: skip
    for c in map(in_the_end, batches()):
        mask = c["response_mask"]
        for alpha in (0.4, 1.0):
            long = mask.sum(1, keepdim=True) * alpha >= 1
            found = theirs["compute_lagae_advantage_return"](
                c["rewards"], c["values"], mask, 1.0, alpha)  # fmt: skip
            got = ZOO.estimators["gae_length_adaptive"](c, alpha=alpha)
            yield "value", got["advantages"] * long, found[0] * mask * long
            yield "value", got["returns"], found[1] * mask
        leaf, columns = leaf_of(c)
        loss = theirs["compute_policy_loss_dppo_tv"](
            c["old_log_probs"], leaf, c["advantages"], mask, "seq-mean-token-sum", config
        )[0]  # fmt: skip
        own = our_loss(
            "dppo_tv", columns, "seq_mean_token_sum", clip_low=0.2, clip_high=0.1, cap=1e9
        )
        yield from loss_pairs(own, loss, leaf, value=False)


def mopd(text: Text) -> Iterator[Pair]:
    methods = "compute_advantage _compute_metrics"
    theirs = instance(text("mopd"), "OPDAdvantageEstimator", methods, {})
    for c in batches():
        found = theirs.compute_advantage(
            None, None, c["response_mask"], c["teacher_log_probs"], c["old_log_probs"])  # fmt: skip
        yield "value", ours("mopd", c, alpha=0.0), found


# ---------------------------------------------------------------- losses


def fipo(text: Text) -> Iterator[Pair]:
    """Means of sums: theirs leaves dropped responses out of a mean over tokens."""
    theirs = functions(
        text("fipo"), "agg_loss compute_policy_loss_future_kl", verl_F=verl(text("fipo verl")),
        AlgoConfig=type(None))["compute_policy_loss_future_kl"]  # fmt: skip
    scripts: dict[str, Any] = {
        "decay_rate": 32.0, "future_kl_clip_ratio": 0.2, "future_kl_clip_high_only": True,
        "safety_thresh": 10.0}  # fmt: skip
    other = {"decay_rate": 4.0, "future_kl_clip_high_only": False, "safety_thresh": 2.0}
    tried: list[tuple[float, dict[str, Any], dict[str, Any]]] = [
        (10.0, scripts, {}),
        (3.0, {**scripts, **other},
         {"half_life": 4.0, "weight_low": 0.8, "safe_ratio": 2.0, "c": 3.0}),
    ]  # fmt: skip
    for c in batches():
        for bound, options, own in tried:
            config = SimpleNamespace(
                clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.28, policy_loss=options,
                get=lambda name, default, c=bound: {"clip_ratio_c": c}.get(name, default),
            )  # fmt: skip
            leaf, columns = leaf_of(c)
            loss = theirs(c["old_log_probs"], leaf, c["advantages"], c["response_mask"],
                          "seq-mean-token-sum", config)[0]  # fmt: skip
            yield from loss_pairs(
                our_loss("fipo", columns, "seq_mean_token_sum", **own), loss, leaf
            )


def real(text: Text) -> Iterator[Pair]:
    space = functions(
        text("real"), "compute_policy_loss_real", verl_F=verl(text("real verl")))  # fmt: skip
    for c in batches():
        c["advantages"] = ours("dr_grpo", {**c, "sequence_rewards": c["sequence_scores"]})
        for tau in (0.5, 0.05):
            leaf, columns = leaf_of(c)
            loss = space["compute_policy_loss_real"](
                c["old_log_probs"], leaf, None, c["response_mask"], c["group_ids"],
                c["sequence_scores"], 0.0, tau)[0]  # fmt: skip
            yield from loss_pairs(
                our_loss("real", columns, "seq_mean_token_sum", tau=tau), loss, leaf
            )


def gvpo(text: Text) -> Iterator[Pair]:
    """Theirs adds up the groups of a batch; in one process."""
    mesh = SimpleNamespace(_flatten=lambda: SimpleNamespace(get_group=lambda: None))
    one = SimpleNamespace(get_world_size=lambda group: 1)
    alone = SimpleNamespace(unique=torch.unique, distributed=one)
    space = functions(text("gvpo"), "compute_policy_loss_gvpo", torch=alone,
                      allgather_dict_tensors=lambda data, *_: data)  # fmt: skip
    for c in batches():
        c["advantages"] = ours("dr_grpo", c)
        for beta in (0.1, 1.0):
            leaf, columns = leaf_of(c)
            loss = space["compute_policy_loss_gvpo"](
                c["old_log_probs"], leaf, c["advantages"], c["response_mask"], beta,
                c["group_ids"], mesh, SAMPLES)  # fmt: skip
            own = our_loss("gvpo", columns, "seq_mean_token_sum", beta=beta)
            yield from loss_pairs(own, loss / (ROWS / SAMPLES), leaf)


def vargrad(text: Text) -> Iterator[Pair]:
    """Theirs is a mean of squares over beta; its groups stand in columns."""
    order = torch.arange(ROWS).view(-1, SAMPLES).T.reshape(-1)
    for c in batches():
        c["advantages"] = ours("dr_grpo", c)
        for beta in (0.1, 1.0):
            leaf, columns = leaf_of(c)
            said = leaf * c["response_mask"]
            found = assigned(
                text("vargrad"), "p_ref_f pi_f log_Z_pred tb_loss", new_logprobs=said[order],
                ref_logprobs=c["ref_log_probs"][order], scores=c["sequence_rewards"][order],
                micro_batch_inds=torch.arange(ROWS), micro_batch_start=0, micro_batch_end=ROWS,
                logZ_k_size=SAMPLES, args=SimpleNamespace(rloo_k=SAMPLES, kl_coef=beta),
            )  # fmt: skip
            share = beta**2 * SAMPLES / (2 * (SAMPLES - 1))
            own = our_loss("vargrad", columns, "seq_mean_token_sum", beta=beta)
            yield from loss_pairs(own, share * found["tb_loss"], leaf)


def ppo_nll(text: Text) -> Iterator[Pair]:
    """The whole loss of a batch."""
    means = functions(text("ppo_nll mean"), "masked_mean calculate_kl")
    kinds = SimpleNamespace(TOKEN_LEVEL="token", SEQUENCE_LEVEL="sequence")
    off = ["force_on_policy_ratio", "disable_ppo_ratio", "sequence_level_importance_ratios",
           "use_cispo", "use_importance_sampling_correction"]  # fmt: skip
    fields: dict[str, Any] = dict.fromkeys(off, False)
    fields |= dict.fromkeys(["ratio_clip_c", "truncated_importance_sampling_ratio"])
    fields |= {"reference_policy_kl_penalty": 0, "reference_policy_kl_type": "k3",
               "ratio_clip_min": 0.2, "ratio_clip_max": 0.28, "loss_type": "token"}  # fmt: skip
    for c in batches():
        mask = c["response_mask"]
        for mu in (0.1, 2.0):
            theirs = instance(
                text("ppo_nll"), "ClippedPGLossFn", "__call__",
                {**fields, "positive_example_nll_weight": mu}, LossType=kinds, **means)  # fmt: skip
            leaf, columns = leaf_of(c)
            shifted = {"token_mask": mask, "advantages": c["advantages"],
                       "prev_logprobs": c["old_log_probs"],
                       "generation_logprobs": c["sampler_log_probs"]}  # fmt: skip
            data = {name: torch.cat([x[:, :1], x], 1) for name, x in shifted.items()}
            data |= {"sample_mask": torch.ones(ROWS), "rewards": c["sequence_scores"]}
            loss = theirs(leaf, data, torch.tensor(float(ROWS)), mask.sum())[0]
            yield from loss_pairs(our_loss("ppo_nll", columns, mu=mu), loss, leaf)


def talks() -> Iterator[tuple[Columns, Tensor]]:
    """Conversations: columns whose rows have observations between their actions, with gradient in
    the log-probs of both, and those."""
    for seed in range(BATCHES):
        draw = torch.Generator().manual_seed(seed)
        length = torch.randint(1, STEPS + 1, (ROWS, 1), generator=draw)
        mask = torch.rand(ROWS, STEPS, generator=draw) < 0.6
        mask[:, 0] = True
        mask = (mask & (torch.arange(STEPS) < length)).double()
        c = made_up(ZOO, seed, mask=mask, groups=torch.arange(ROWS) // SAMPLES)
        seen = -4 * torch.rand(ROWS, STEPS, generator=draw, dtype=torch.float64)
        seen = torch.where(mask > 0, c["log_probs"], seen) * c["response_attention"]
        leaf = seen.requires_grad_()
        policy = SimpleNamespace(log_prob_stats=lambda _, x=leaf: {"log_probs": x})
        yield {**c, **Policy.with_observations(policy, c)}, leaf  # type: ignore[arg-type]


def echo(text: Text) -> Iterator[Pair]:
    """Their cross-entropy beside our clipped loss; the 0.001 of their denominators is taken off."""
    theirs = functions(text("echo"), "compute_world_model_loss")["compute_world_model_loss"]
    config = SimpleNamespace(world_model_coeff=0.05, loss_reduction="sequence_mean",
                             world_loss_normalization="full_observation_tokens")  # fmt: skip
    for c, leaf in talks():
        seen = c["response_attention"] - c["response_mask"]
        counts = seen.sum(1, keepdim=True).clamp(min=1) - 1e-3
        answers = theirs(leaf, seen, config, full_observation_count=counts)[0] / ROWS
        clipped = our_loss("ppo_clip", c, "seq_mean_token_mean")
        own = our_loss("echo", c, "seq_mean_token_mean", weight=0.05)
        yield "value", (own - clipped).detach(), answers.detach()
        yield from loss_pairs(own, clipped + answers, leaf)


def observation_nll(text: Text) -> Iterator[Pair]:
    """The tokens that their ECHO weighs, and their loss of one response with its own count."""
    weigh = functions(text("observation_nll tokens"), "_weight_observations",
                      iter_trainable_branches=lambda trace: [(trace, 0)])  # fmt: skip
    space = functions(
        text("observation_nll"), "_safe_mean ce_loss_fn compute_loss",
        LossInputs=SimpleNamespace, LossOutputs=SimpleNamespace)  # fmt: skip
    algorithm = SimpleNamespace(role_weights={"tool": 0.05}, filter_fn=None)
    for c, leaf in talks():
        total = torch.zeros(())
        for i in range(ROWS):
            acts = c["response_mask"][i, : int(c["response_attention"][i].sum())].bool()
            nodes = [node("user", 3), *(node("assistant" if a else "tool", 1) for a in acts)]
            trace = SimpleNamespace(nodes=nodes, token_ids=[0] * (3 + len(acts)))
            weigh["_weight_observations"](algorithm, trace)
            ce = [(one.loss_weights or {"ce": [0.0]})["ce"][0] for one in nodes[1:]]
            said = leaf[i, : len(acts)]
            count = max(sum(w > 0 for w in ce), 1)
            loss, _ = space["compute_loss"](
                [said], [said], None, [said], [acts], [torch.zeros(len(acts))],
                [torch.tensor(ce)], None, None, 1, count, 1)  # fmt: skip
            total = total + loss / ROWS
        yield from loss_pairs(0.05 * c["observation_nll"].mean(), total, leaf)


def node(role: str, tokens: int) -> SimpleNamespace:
    """A part of a conversation, as prime-rl keeps it."""
    return SimpleNamespace(
        token_ids=[0] * tokens, message=SimpleNamespace(role=role), sampled=role == "assistant",
        is_content=[], loss_weights=None)  # fmt: skip


# ---------------------------------------------------------------- value losses


def value_pairs(
    name: str, c: Columns, leaf: Tensor, theirs: Tensor, **options: Any
) -> Iterator[Pair]:
    loss, _ = ZOO.value_losses[name]({**c, "value_logits": leaf}, **options)
    mean = (ZOO.aggregations["token_mean"](c) * loss).sum()
    yield from loss_pairs(mean, theirs, leaf)


def hl_gauss(text: Text) -> Iterator[Pair]:
    """Returns inside the support, which theirs gives by the outer edges of its bins."""
    for c in batches():
        centres, acts = c["value_support"], c["response_mask"].bool()
        width = centres[1] - centres[0]
        edges = torch.cat([centres - width / 2, centres[-1:] + width / 2])
        for sigma in (0.75, 2.0):
            theirs = instance(text("hl_gauss"), "HLGaussLoss", "forward transform_to_probs",
                              {"support": edges, "sigma": sigma * width})  # fmt: skip
            leaf = c["value_logits"].clone().requires_grad_()
            found = theirs.forward(leaf[acts], c["returns"][acts])
            yield from value_pairs("hl_gauss", c, leaf, found, sigma=sigma)


def bce(text: Text) -> Iterator[Pair]:
    space = functions(text("bce"), "bernoulli_target cross_entropy_with_soft_target")
    for c in batches():
        acts = c["response_mask"].bool()
        c["value_support"] = torch.tensor([0.0, 1.0]).double()
        leaf = c["value_logits"][..., :2].clone().requires_grad_()
        target = space["bernoulli_target"](c["returns"][acts])
        found = space["cross_entropy_with_soft_target"](leaf[acts], target).mean()
        yield from value_pairs("bce", c, leaf, found)


# name -> the comparison, and what is to be said of it
COMPARED: dict[str, tuple[Callable[[Text], Iterator[Pair]], str]] = {
    "spo": (spo, "lines of `fit`"),
    "history": (history, "`_get_spo_rho`, ten steps; float32"),
    "softmax_grpo": (softmax_grpo, "`softmax_advantages`; tau 0.1, 0.3, 5"),
    "raft": (raft, "`compute_raft_outcome_advantage`; scores 1, 0, -1"),
    "gae_decoupled": (gae_decoupled, "`GeneralizedAdvantageEstimator`"),
    "gae_length_adaptive": (gae_length_adaptive, "`GeneralizedAdvantageEstimator`; float32"),
    "bpco": (bpco, "its GAE, alpha L >= 1; `compute_policy_loss_dppo_tv`, cap 1e9"),
    "mopd": (mopd, "`OPDAdvantageEstimator`; alpha 0"),
    "fipo": (fipo, "`compute_policy_loss_future_kl`"),
    "real": (real, "`compute_policy_loss_real`; tau 0.5, 0.05"),
    "gvpo": (gvpo, "`compute_policy_loss_gvpo`; beta 0.1, 1"),
    "vargrad": (vargrad, "lines of the trainer; beta 0.1, 1"),
    "ppo_nll": (ppo_nll, "`ClippedPGLossFn`; mu 0.1, 2"),
    "echo": (echo, "`compute_world_model_loss` on our clipped loss"),
    "observation_nll": (observation_nll, "`_weight_observations`, `compute_loss`"),
    "hl_gauss": (hl_gauss, "`HLGaussLoss`; sigma 0.75, 2"),
    "bce": (bce, "`bernoulli_target`; float32"),
}
