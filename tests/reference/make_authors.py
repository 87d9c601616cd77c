"""What docs/agreement.md says of the zoo beside the code of the papers' authors.

    python tests/reference/make_authors.py [NAME ...] [--files DIR]

Each comparison takes functions out of one file of a public repository (`SOURCES`: repository,
commit and path), downloaded into DIR once; where there is no network put it at
DIR/OWNER/NAME/COMMIT/PATH. They run as they stand, beside the zoo's, in float64 on made-up batches
of 64 ragged rows with up to 40 tokens and ratios up to e^4. What was found is kept in authors.json;
nothing of theirs is kept here. Two minutes; a file that cannot be had is named, its rows stay.

Their code could not be had for `blend`, `up`, `ripo`, `delightful`, `k3_unbiased`, `vopd`, CFPO,
and `turn_clip` (2511.20718 names Cloud0723/SORL, which was not to be had).
"""

import argparse
import asyncio
import json
import sys
import urllib.error
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from authors import later  # noqa: E402
from authors.batches import (  # noqa: E402
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
from authors.sources import Source, branch, functions  # noqa: E402

from helpers.zoo import ZOO  # noqa: E402
from rlzoo_lab.kit.checks.made_up import made_up  # noqa: E402

VERL = "verl/trainer/ppo/core_algos.py"
VIMPO = "backprop07/VIMPO", "2aa83bcb9568a46be0af8fa943c4345b3d7c53d1"
SDPO = "lasgroup/SDPO", "0e6d5106abe69f578c63bf38a9394e22905c8773"
IW_OPD = (
    "YannX1e/Importance-Weighted-On-Policy-Distillation",
    "b1320d3b446ae4ecfb8cb1c0f4ec7fcea9d3d878",
)
TINKER = "thinking-machines-lab/tinker-cookbook", "9dfcc3a2cf44432d621a01005073dc6d76a1e87a"
UNIRL = "Tencent-Hunyuan/UniRL"
ARCHER = "wizard-III/Archer2.0", "b08d963d5d65909ef1f24dba2f382006d0be33e1"
APO = "ZhaolinGao/A-PO", "c8823a32aeec5a4197b118c6c5222ba1b385c15e"
PRIME = "PRIME-RL/PRIME", "18ad596f08d487bb546d80d738d99ec697bd2e75"
TRL = "huggingface/trl", "f2cd57710ae345ea6428ae95363267fcf38a3dc8"
SOURCES = {
    "vimpo": Source(*VIMPO, "recipe/vimpo/vimpo_core_algos.py"),
    "vimpo ppo": Source(*VIMPO, VERL),
    "vimpo verl": Source(*VIMPO, "verl/utils/torch_functional.py"),
    "sdpo": Source(*SDPO, VERL),
    "sdpo verl": Source(*SDPO, "verl/utils/torch_functional.py"),
    "iw_opd": Source(*IW_OPD, "verl/verl/workers/actor/dp_actor.py"),
    "opd": Source(*TINKER, "tinker_cookbook/distillation/train_on_policy.py"),
    "opd sum": Source(*TINKER, "tinker_cookbook/rl/metrics.py"),
    "drpo": Source(UNIRL, "1a7b501e8fe8517b432a130220d2ff462f9b5afa", "unirl/algorithms/drpo.py"),
    "cppo": Source(UNIRL, "30899fcf229bb9b42db20f067fd2ea9165981051", "unirl/algorithms/cppo.py"),
    "aspo": Source(*ARCHER, VERL),
    "aspo verl": Source(*ARCHER, "verl/utils/torch_functional.py"),
    "a_star_po": Source(*APO, "verl/trainer/apo/core_algos.py"),
    "optimal_values": Source(*APO, "verl/utils/dataset/rl_dataset.py"),
    "prime": Source(*PRIME, "training/verl/trainer/ppo/core_algos.py"),
    "prime verl": Source(*PRIME, "training/verl/utils/torch_functional.py"),
    "gigpo": Source("langfengQ/verl-agent", "29e3e8b3e3412aff53b1e4a461dac77a8eec19bd",
                    "gigpo/core_gigpo.py"),
    "vtrace": Source("facebookresearch/torchbeast", "0af07b051a2176a8f9fd20c36891ba2bba6bae68",
                     "torchbeast/core/vtrace.py"),
    "opsm": Source(*TRL, "trl/trainer/grpo_trainer.py"),
    "high_entropy": Source(*TRL, "trl/trainer/grpo_trainer.py"),
    **later.SOURCES,
}  # fmt: skip


# ---------------------------------------------------------------- a comparison each


def vimpo(text: Callable[[str], str]) -> Iterator[Pair]:
    """The whole loss of a batch: raw value, squared error, exact KL, whitened, PPO's two clips."""
    verl = SimpleNamespace(**functions(
        text("vimpo verl"), "masked_sum masked_mean masked_var masked_whiten"))  # fmt: skip
    ppo = functions(text("vimpo ppo"), "agg_loss compute_policy_loss_vanilla",
                    verl_F=verl, AlgoConfig=type(None))  # fmt: skip
    theirs = functions(
        text("vimpo"),
        "build_vimpo_token_term _masked_sequence_sum masked_whiten_distributed _group_mean_by_uid"
        " compute_grouped_baseline_by_uid compute_reward_baseline_by_uid _scale_value_loss"
        " _compute_terminal_value_loss_stats compute_vimpo_terminal_mse_loss compute_vimpo_loss"
        " compute_detached_vimpo_ppo_targets", verl_F=verl, agg_loss=ppo["agg_loss"],
    )  # fmt: skip
    tried = ({}, {"beta": 0.05, "lam": 0.7, "c": 1.5}, {"beta": 0.5, "actor_coef": 1.0})
    for c in batches():
        options = {"beta": 5e-4, "lam": 1.0, "actor_coef": 5e-3, "c": 10.0}
        for changed in tried:
            o = options | changed
            leaf, columns = leaf_of(c)
            columns["advantages"] = ours("dr_grpo", c)
            given = [leaf, c["ref_log_probs"], c["full_kl"]]
            paid = torch.zeros_like(leaf)
            paid[:, 0] = c["sequence_rewards"]
            mean = theirs["compute_reward_baseline_by_uid"](
                paid, c["response_mask"], c["group_ids"])  # fmt: skip
            value = theirs["compute_vimpo_loss"](
                *given, paid, c["response_mask"], beta=o["beta"], gamma=1.0, reward_baseline=mean,
                loss_agg_mode="token-mean", global_batch_info={})[0]  # fmt: skip
            push = theirs["compute_detached_vimpo_ppo_targets"](
                *given, c["response_mask"], beta=o["beta"], gamma=1.0, lam=o["lam"])[0]  # fmt: skip
            config = SimpleNamespace(
                clip_ratio=0.2, clip_ratio_low=0.2, clip_ratio_high=0.28, global_batch_info={},
                get=lambda name, default, c=o["c"]: {"clip_ratio_c": c}.get(name, default),
            )  # fmt: skip
            actor = ppo["compute_policy_loss_vanilla"](
                c["old_log_probs"], leaf, push, c["response_mask"], "token-mean", config
            )[0]  # fmt: skip
            yield from loss_pairs(
                our_loss("vimpo", columns, **o), value + o["actor_coef"] * actor, leaf)  # fmt: skip


def sdpo(text: Callable[[str], str]) -> Iterator[Pair]:
    """The gradient at the first update of a batch; theirs is a mean over the rows that were shown
    an answer, ours over all: up to that factor. Their weight is 1 there."""
    verl = SimpleNamespace(**functions(text("sdpo verl"), "masked_sum masked_mean"))
    theirs = functions(text("sdpo"), "agg_loss compute_self_distillation_loss", verl_F=verl)
    config = SimpleNamespace(full_logit_distillation=False, alpha=1.0, is_clip=2.0)
    for c in batches():
        mask, shown = c["response_mask"], (torch.arange(ROWS) % 3 > 0).double()
        old = c["old_log_probs"]
        teacher = torch.where(shown[:, None] > 0, c["teacher_log_probs"], old)
        leaf, columns = leaf_of({**c, "log_probs": old, "self_teacher_log_probs": teacher})
        columns["advantages"] = ours("sdpo", {**c, "self_teacher_log_probs": teacher})
        loss = theirs["compute_self_distillation_loss"](
            leaf, teacher, mask, config, old_log_probs=old, self_distillation_mask=shown
        )[0]  # fmt: skip
        part = (mask * shown[:, None]).sum() / mask.sum()
        yield from loss_pairs(our_loss("surrogate", columns), loss * part, leaf, value=False)


def iw_opd(text: Callable[[str], str]) -> Iterator[Pair]:
    """The branch of their update that weighs the advantages."""
    for c in batches():
        for weight_max in (1.5, 1.0, 4.0):
            given = {"iw_opd_weight_max": weight_max}
            apart = c["teacher_log_probs"] - c["old_log_probs"]
            found = branch(
                text("iw_opd"), "enable_iw_opd_weight", response_mask=c["response_mask"],
                self=SimpleNamespace(config=SimpleNamespace(policy_loss=given)),
                model_inputs={"ref_log_prob": c["teacher_log_probs"]}, advantages=apart,
                old_log_prob=c["old_log_probs"], micro_batch_metrics={},
            )  # fmt: skip
            theirs = found["advantages"] * c["response_mask"]
            yield "value", ours("iw_opd", c, weight_max=weight_max), theirs


def opd(text: Callable[[str], str]) -> Iterator[Pair]:
    """incorporate_kl_penalty on data and a teacher that only hold numbers."""
    total = functions(text("opd sum"), "discounted_future_sum_vectorized")
    data = SimpleNamespace(TensorData=SimpleNamespace(from_torch=holding))
    theirs = functions(
        text("opd"), "incorporate_kl_penalty", asyncio=asyncio, tinker=data, cast=lambda _, x: x,
        safezip=lambda *lists: list(zip(*lists, strict=True)), dataset_configs=None,
        discounted_future_sum_vectorized=total["discounted_future_sum_vectorized"],
    )["incorporate_kl_penalty"]  # fmt: skip
    for c in batches():
        for gamma in (0.0, 0.9, 1.0):
            rows, teachers = [], []
            for i in range(ROWS):
                n = int(c["response_mask"][i].sum())
                inputs = {
                    "target_tokens": holding(torch.zeros(n).long()),
                    "logprobs": holding(c["old_log_probs"][i, :n]),
                    "mask": holding(torch.ones(n)),
                    "advantages": holding(torch.zeros(n).double()),
                }
                whole = SimpleNamespace(append_int=lambda token: None)
                rows.append(SimpleNamespace(loss_fn_inputs=inputs, model_input=whole))
                said = [None, *c["teacher_log_probs"][i, :n].tolist()]
                teachers.append(SimpleNamespace(compute_logprobs_async=saying(said)))
            asyncio.run(theirs(rows, teachers, [0] * ROWS, 1.0, gamma))
            found = torch.zeros_like(c["old_log_probs"])
            for i, row in enumerate(rows):
                got = row.loss_fn_inputs["advantages"].to_torch()
                found[i, : len(got)] = got
            yield "value", ours("opd", c, gamma=gamma), found


def holding(x: Tensor) -> Any:
    return SimpleNamespace(data=x.tolist(), to_torch=lambda: x)


def saying(answer: list[float | None]) -> Callable:
    async def compute_logprobs_async(_: Any) -> list[float | None]:
        return answer

    return compute_logprobs_async


def packed(c: Columns, name: str) -> Tensor:
    return c[name][c["response_mask"].bool()]


def drpo(text: Callable[[str], str]) -> Iterator[Pair]:
    theirs = functions(text("drpo"), "_drpo_loss")["_drpo_loss"]
    for c in batches():
        for eps in (12.5, 0.3):
            leaf, columns = leaf_of(c)
            loss, _ = theirs(
                new_logp=packed(columns, "log_probs"), old_logp=packed(c, "old_log_probs"),
                advantages=packed(c, "advantages"), epsilon=eps)  # fmt: skip
            yield from loss_pairs(our_loss("drpo", columns, eps=eps), loss.mean(), leaf)


def cppo(text: Callable[[str], str]) -> Iterator[Pair]:
    theirs = functions(text("cppo"), "_cppo_mask _cppo_loss")["_cppo_loss"]
    for c in batches():
        for delta, weight_min, budget in ((0.15, 0.8, 0.02), (0.02, 0.2, 0.05)):
            leaf, columns = leaf_of(c)
            loss, _ = theirs(
                new_logp=packed(columns, "log_probs"), old_logp=packed(c, "old_log_probs"),
                advantages=packed(c, "advantages"), lengths=c["response_mask"].sum(1).long(),
                delta=delta, w_min=weight_min, delta_b=budget)  # fmt: skip
            own = our_loss("cppo", columns, delta=delta, weight_min=weight_min, budget=budget)
            yield from loss_pairs(own, loss.mean(), leaf)


def aspo(text: Callable[[str], str]) -> Iterator[Pair]:
    """Gradients, every token as one of low entropy."""
    verl = SimpleNamespace(**functions(text("aspo verl"), "masked_sum masked_mean"))
    theirs = functions(text("aspo"), "agg_loss compute_policy_loss_archer", verl_F=verl)
    for c in batches():
        for bound in (3.0, 1.1):
            leaf, columns = leaf_of(c)
            mask = c["response_mask"].bool()
            loss = theirs["compute_policy_loss_archer"](
                c["old_log_probs"], leaf, c["advantages"], mask, torch.ones_like(mask),
                negative_clip_ratio_c=bound, positive_clip_ratio_c=bound)[0]  # fmt: skip
            own = our_loss("aspo", columns, c=bound)
            yield from loss_pairs(own, loss, leaf, value=False)


def a_star_po(text: Callable[[str], str]) -> Iterator[Pair]:
    theirs = functions(text("a_star_po"), "compute_policy_loss")["compute_policy_loss"]
    for c in batches():
        for beta in (1e-3, 0.5):
            leaf, columns = leaf_of(c)
            best = c["optimal_values"]
            columns["advantages"] = ours("a_star_po", c)
            paid = torch.zeros_like(leaf)
            paid[:, 0] = c["sequence_scores"]
            loss = theirs(c["response_mask"], c["ref_log_probs"], leaf, STEPS, paid, best, beta)
            own = our_loss("a_star_po", columns, "seq_mean_token_sum", beta=beta)
            yield from loss_pairs(own, loss, leaf)


def optimal_values(text: Callable[[str], str]) -> Iterator[Pair]:
    """V* of 64 prompts from the scores of eight responses each."""
    column = sys.modules[ZOO.columns["optimal_values"].function.__module__].optimal_values
    for seed in range(BATCHES):
        scores = torch.rand(ROWS, SAMPLES, generator=torch.Generator().manual_seed(seed)).double()
        for beta in (0.5, 0.05):
            table = Frame({f"eval_{k}": scores[:, k].numpy() for k in range(SAMPLES)})
            own = SimpleNamespace(dataframe=table, beta1=beta, num_gen_to_use=SAMPLES)
            functions(text("optimal_values"), "_process_values", print=lambda *_: None)[
                "_process_values"](own)  # fmt: skip
            ids = torch.arange(ROWS)[:, None]
            found = column(
                lambda *_, **__: {}, lambda drawn, s=scores: s[drawn["rows"][::SAMPLES]], None, ids,
                torch.ones_like(ids), ["x"] * ROWS, rollouts=SAMPLES, beta=beta)  # fmt: skip
            yield "value", found, torch.tensor(table["v_star"], dtype=torch.float64)


class Frame(dict):
    """As much of a data frame as their lines use."""

    @property
    def columns(self) -> np.ndarray:
        return np.array(list(self))

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, list):
            rows = np.stack([self[k] for k in key], 1)
            return SimpleNamespace(to_numpy=lambda: rows)
        return super().__getitem__(key)

    def __len__(self) -> int:
        return len(super().__getitem__("eval_0"))


def prime(text: Callable[[str], str]) -> Iterator[Pair]:
    """The outcome's part alone, before they whiten; the other is on purpose not theirs."""
    verl = SimpleNamespace(masked_whiten=lambda x, mask: x)
    theirs = functions(text("prime"), "compute_rloo_returns", verl_F=verl)["compute_rloo_returns"]
    params = SimpleNamespace(reward_model_gamma=1.0, verifier_gamma=1.0)
    config = SimpleNamespace(algorithm=SimpleNamespace(adv_params=params))
    for c in batches():
        mask = c["response_mask"]
        last = mask.sum(1).long() - 1
        scores = torch.zeros_like(mask)
        scores[torch.arange(ROWS), last] = c["sequence_scores"]
        data = SimpleNamespace(batch={
            "gt_scores": scores, "prompts": c["prompt_ids"], "responses": c["response_ids"],
            "attention_mask": torch.cat([c["prompt_mask"], mask], 1).long(),
        })  # fmt: skip
        found = theirs(data, mask, SAMPLES, config)[1] * mask
        none = torch.zeros_like(mask)
        yield "value", ours("prime", {**c, "implicit_rewards": none}), found


def gigpo(text: Callable[[str], str]) -> Iterator[Pair]:
    """mean_norm, the mean over trajectories (compute_mean_std_cross_steps=False), a row a turn."""
    space = functions(
        text("gigpo"), "to_hashable compute_step_discounted_returns episode_norm_reward"
        " build_step_group step_norm_reward", defaultdict=defaultdict, uuid=uuid,
        print=lambda *_: None,
    )  # fmt: skip
    for c in batches():
        mask, turns = c["response_mask"], c["turn_ids"]
        at = [(i, k) for i in range(ROWS) for k in (1, 2) if mask[i][turns[i] == k].any()]
        mine = [mask[i].bool() & (turns[i] == k) for i, k in at]
        row = np.array([i for i, _ in at])
        row_of = list(zip(row.tolist(), mine, strict=True))
        rewards = torch.stack([c["rewards"][i][m].sum() for i, m in row_of])
        keys = np.array([int(c["state_keys"][i][m][0]) for i, m in row_of])
        data = SimpleNamespace(
            batch={"input_ids": mask},
            non_tensor_batch={"rewards": rewards.numpy(), "traj_uid": row,
                              "active_masks": np.ones(len(at))})  # fmt: skip
        group = c["group_ids"].numpy()[row]
        returns = space["compute_step_discounted_returns"](data, 0.95)
        same = space["build_step_group"](keys, group)
        whole = torch.zeros(len(at), 1, dtype=torch.float64)
        whole[:, 0] = c["sequence_rewards"][row]
        one = torch.ones_like(whole)
        step = space["step_norm_reward"](returns, one, same)
        episode = space["episode_norm_reward"](
            whole, one, group, row, compute_mean_std_cross_steps=False)  # fmt: skip
        found = torch.zeros_like(mask)
        for (i, m), value in zip(row_of, (step + episode)[:, 0], strict=True):
            found[i][m] = value.double()
        yield "value", ours("gigpo", c, gamma=0.95), found


def vtrace(text: Callable[[str], str]) -> Iterator[Pair]:
    """Full rows, gamma .97; their discounts and c hold no lambda."""
    theirs = functions(text("vtrace"), "from_importance_weights",
                       VTraceReturns=SimpleNamespace)["from_importance_weights"]  # fmt: skip
    for seed in range(BATCHES):
        mask, groups = torch.ones(ROWS, STEPS).double(), torch.arange(ROWS) // SAMPLES
        c = made_up(ZOO, seed, mask=mask, groups=groups)
        apart = 5 * (c["old_log_probs"] - c["sampler_log_probs"])
        c["sampler_log_probs"] = c["old_log_probs"] - apart
        for bar in (1.0, 2.5):
            found = theirs(
                apart.T, torch.full_like(apart.T, 0.97), c["rewards"].T, c["values"].T,
                c["bootstrap_values"], clip_rho_threshold=bar, clip_pg_rho_threshold=bar,
            )  # fmt: skip
            own = ZOO.estimators["vtrace"](c, gamma=0.97, rho_bar=bar)
            yield "value", own["advantages"], found.pg_advantages.T
            yield "value", own["returns"], found.vs.T


def opsm(text: Callable[[str], str]) -> Iterator[Pair]:
    """Their mask on our clipped loss."""
    theirs = functions(text("opsm"), "get_off_policy_mask")["get_off_policy_mask"]
    for c in batches():
        leaf, columns = leaf_of(c)
        columns["advantages"] = c["advantages"][:, :1].expand_as(leaf) * c["response_mask"]
        keep = theirs(columns["advantages"][:, :1], leaf, c["sampler_log_probs"],
                      c["response_mask"], 0.05)  # fmt: skip
        clipped, _ = ZOO.policy_losses["ppo_clip"](columns)
        loss = (ZOO.aggregations["token_mean"](columns) * clipped * keep).sum()
        yield from loss_pairs(our_loss("opsm", columns, delta=0.05), loss, leaf)


def high_entropy(text: Callable[[str], str]) -> Iterator[Pair]:
    """Which tokens are kept: theirs has one more where its threshold lies between two."""
    theirs = functions(text("high_entropy"), "get_high_entropy_mask")["get_high_entropy_mask"]
    alone = SimpleNamespace(accelerator=SimpleNamespace(
        pad_across_processes=lambda x, **_: x, gather=lambda x: x))  # fmt: skip
    for c in batches():
        c["entropy"] = c["entropy"].float().double()  # they compare in float32
        kept = ZOO.policy_losses["high_entropy"](c)[1]["pg_kept"]
        found = theirs(alone, c["entropy"], c["response_mask"], 0.8).double()
        more = (found - kept).sum()
        if more not in (0, 1):
            raise SystemExit(f"high_entropy: theirs keeps {more:+.0f} tokens")
        yield "value", kept, found * kept


# name -> the comparison, and what is to be said of it
COMPARED: dict[str, tuple[Callable[[Callable[[str], str]], Iterator[Pair]], str]] = {
    "vimpo": (vimpo, "`compute_vimpo_loss`; beta 5e-4 to 0.5, lam 1 and 0.7"),
    "sdpo": (sdpo, "`compute_self_distillation_loss`, token-level form"),
    "opd": (opd, "`incorporate_kl_penalty`; gamma 0, 0.9, 1"),
    "iw_opd": (iw_opd, "lines of `dp_actor.py`; weight_max 1, 1.5, 4"),
    "drpo": (drpo, "`_drpo_loss`; eps 12.5 and 0.3"),
    "cppo": (cppo, "`_cppo_loss`; its distance is float32"),
    "aspo": (
        aspo,
        "`compute_policy_loss_archer`, all tokens of low entropy; a constant factor is left out",
    ),
    "a_star_po": (a_star_po, "`compute_policy_loss`; beta 1e-3 and 0.5"),
    "optimal_values": (optimal_values, "`_process_values`; beta 0.5 and 0.05"),
    "prime": (prime, "`compute_rloo_returns`, the outcome's part, before whitening"),
    "gigpo": (gigpo, "`mean_norm`, float32"),
    "vtrace": (vtrace, "`from_importance_weights`"),
    "opsm": (opsm, "`get_off_policy_mask` on our clipped loss; delta 0.05"),
    "high_entropy": (
        high_entropy,
        "`get_high_entropy_mask`; it keeps one more token in some batches",
    ),
    **later.COMPARED,
}


def compare(name: str, files: Path) -> dict[str, Any]:
    """The largest difference of each kind, relative to the batch's largest number."""
    worst: dict[str, float] = {}
    calls = 0
    for kind, own, their in COMPARED[name][0](lambda key: SOURCES[key].text(files)):
        if not their.abs().max() > 0:
            raise SystemExit(f"{name}: theirs are all 0: nothing is compared")
        apart = float((own - their).abs().max() / their.abs().max())
        worst[kind] = max(worst.get(kind, 0.0), apart)
        calls += 1
    beside = f"{SOURCES[name]}"
    return {"beside": beside, "note": COMPARED[name][1], "compared": calls, **worst}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", default=list(COMPARED), metavar="NAME",
                        help=", ".join(COMPARED))  # fmt: skip
    parser.add_argument("--files", type=Path, default=Path("/tmp/rlzoo-authors"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    record = HERE / "authors.json"
    found = json.loads(record.read_text()) if record.exists() else {}
    for name in arguments.names:
        try:
            found[name] = compare(name, arguments.files)
        except (urllib.error.URLError, OSError) as error:
            print(f"{name}: {SOURCES[name]} could not be had ({error})", file=sys.stderr)
            continue
        print(name, {k: v for k, v in found[name].items() if not isinstance(v, str)}, flush=True)
    record.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print("now python docs/generate.py", file=sys.stderr)


if __name__ == "__main__":
    main()
