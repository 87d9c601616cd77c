"""rlzoo in slime, by slime's own compute_advantages_and_returns: writes JSON.

    python tests/reference/make_bridges.py slime

slime is a checkout of its repository (it is on no index); `loss.py` is unmodified. Megatron, which
needs GPUs, is the few functions that say how many ranks there are; two ranks are two processes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import torch
import torch.distributed as dist

CHECKOUT, OUT = sys.argv[1], sys.argv[2]
RANK, RANKS = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))

mpu = types.ModuleType("megatron.core.mpu")
mpu.is_pipeline_last_stage = lambda: True
mpu.get_context_parallel_world_size = lambda: 1
mpu.get_context_parallel_rank = lambda: 0
mpu.get_tensor_model_parallel_group = lambda: None
mpu.get_data_parallel_world_size = lambda with_context_parallel=False: RANKS
mpu.get_data_parallel_group = lambda with_context_parallel=False: dist.group.WORLD
megatron, core = types.ModuleType("megatron"), types.ModuleType("megatron.core")
megatron.core, core.mpu = core, mpu
sys.modules |= {"megatron": megatron, "megatron.core": core, "megatron.core.mpu": mpu}
backends = types.ModuleType("slime.backends.megatron_utils")  # its __init__ wants all of Megatron
backends.__path__ = [f"{CHECKOUT}/slime/backends/megatron_utils"]
sys.modules["slime.backends.megatron_utils"] = backends
sys.path.insert(0, CHECKOUT)

from batches import CASES, OPTIONS, columns, gap, make, options  # noqa: E402
from slime.backends.megatron_utils.loss import compute_advantages_and_returns  # noqa: E402

from rlzoo import load_zoo  # noqa: E402
from rlzoo.errors import RlzooError  # noqa: E402
from rlzoo.ops import whiten  # noqa: E402
from rlzoo.recipe.files import list_configs  # noqa: E402
from rlzoo_bridges.hosts import HOSTS  # noqa: E402
from rlzoo_bridges.lines import lines  # noqa: E402

HOST, ZOO = HOSTS["slime"], load_zoo()
FED = [n for n, c in ZOO.estimators.items() if not HOST.refusal(c, ZOO.columns)]
SAMPLES = 4  # slime's groups are equally large: 12 rows are 3 prompts


def arguments(estimator=None, **more) -> argparse.Namespace:
    given = {
        "advantage_estimator": "ppo", "kl_coef": 0.0, "kl_loss_type": "k1", "gamma": 0.97,
        "lambd": 0.9, "use_rollout_logprobs": False, "use_opd": False,
        "normalize_advantages": False,
        "rewards_normalization": False, "n_samples_per_prompt": SAMPLES,
        "custom_advantage_function_path": "rlzoo_bridges.slime.advantages" if estimator else None,
    }  # fmt: skip
    own = {"estimator": estimator, **OPTIONS.get(estimator, {})} if estimator else None
    return argparse.Namespace(**given | {"rlzoo": own} | more)


def slimes(x, rows=None) -> dict:
    """Its layout: a list with a tensor for each response of this rank, as long as it is."""
    order = range(len(x["outcome"])) if rows is None else rows
    ends = (x["response_mask"] * torch.arange(1, x["response_mask"].shape[1] + 1)).amax(1).long()
    names = {"log_probs": "old_log_probs", "rollout_log_probs": "sampler_log_probs",
             "ref_log_probs": "ref_log_probs", "values": "values"}  # fmt: skip
    data = {k: [x[ours][i, : ends[i]].clone() for i in order] for k, ours in names.items()}
    return data | {
        "loss_masks": [x["response_mask"][i, : ends[i]].int() for i in order],
        "rewards": [x["outcome"][i].item() for i in order],
        "response_lengths": [int(ends[i]) for i in order],
        "total_lengths": [int(ends[i]) + 2 for i in order],
        "sample_indices": [int(x["sample_indices"][i]) for i in order],
    }


def batch(case, rewards=None):
    """A batch of 3 prompts with 4 samples, its outcome at the last action."""
    x = make(case)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(5))
    x["sample_indices"] = 100 + order
    x["group_ids"] = order // SAMPLES
    last = (x["response_mask"] * torch.arange(1, 10)).argmax(1)
    x["rewards"] = torch.nn.functional.one_hot(last, 9).double() * x["outcome"][:, None]
    return x


def beside(data, want, rows=None) -> float:
    order = range(len(want)) if rows is None else rows
    return max(gap(a.double(), want[i, : len(a)]) for a, i in zip(data, order, strict=True))


def estimators() -> dict:
    worst, calls = 0.0, 0
    for case in [c for c in CASES if c not in ("dense", "group_of_one")]:
        for name in FED:
            x, component = batch(case), ZOO.estimators[name]
            data = slimes(x)
            compute_advantages_and_returns(arguments(name), data)
            want = component(columns(x), **options(component))
            worst = max(worst, beside(data["advantages"], want["advantages"]))
            worst = max(worst, beside(data["returns"], want.get("returns", want["advantages"])))
            calls += 1
    return {"estimators": len(FED), "calls": calls, "worst": worst}


def against_slime() -> dict:
    """Beside slime's own ppo, single-turn, with KL in the reward; and its whitening after ours."""
    found = {}
    for coef in (0.0, 0.1):
        x = batch("ragged")
        pair = []
        for name in ("gae", None):
            data = slimes(x)
            compute_advantages_and_returns(arguments(name, kl_coef=coef), data)
            pair.append(data)
        for key in ("advantages", "returns"):
            found[f"ppo, {key}, kl_coef {coef}"] = max(
                gap(a.double(), b.double()) for a, b in zip(pair[0][key], pair[1][key], strict=True)
            )
    return found


def refusals() -> dict:
    told = {}
    for what, given in {
        "gigpo": arguments("gigpo"), "gea": arguments("gea"),
        "standardised rewards": arguments("rloo", advantage_estimator="grpo",
                                          rewards_normalization=True),
        "no estimator": arguments(
            None, custom_advantage_function_path="rlzoo_bridges.slime.advantages"),
    }.items():  # fmt: skip
        try:
            compute_advantages_and_returns(given, slimes(batch("ragged")))
        except RlzooError as error:
            told[what] = str(error)
    data = slimes(batch("ragged"))
    del data["values"]
    try:
        compute_advantages_and_returns(arguments("gae"), data)
    except RlzooError as error:
        told["no critic"] = str(error)
    return told


def two_ranks() -> dict:
    """The samples of a prompt lie on two ranks: each gets its rows of what one rank would."""
    worst = 0.0
    rows = [i for i in range(12) if i % 2 == RANK] if RANK == 0 else [i for i in range(12) if i % 2]
    for name in FED:
        x, component = batch("multi_turn"), ZOO.estimators[name]
        data = slimes(x, rows)
        given = arguments(name)
        given.rlzoo["whiten"] = "batch"
        compute_advantages_and_returns(given, data)
        want = component(columns(x), **options(component))["advantages"]
        want = whiten(want, x["response_mask"], ddof=1)
        worst = max(worst, beside(data["advantages"], want, rows))
    return {"estimators": len(FED), "worst": worst}


def flags() -> dict:
    """Every flag of the lines of every recipe is one of slime's, or Megatron's."""
    source = Path(CHECKOUT, "slime/utils/arguments.py").read_text()
    megatron = {"--lr", "--global-batch-size"}
    known, composed, refused = set(), 0, {}
    for recipe in list_configs("recipes"):
        try:
            said = lines("slime", [f"recipe={recipe}"], ZOO).words
        except RlzooError as error:
            refused[recipe] = str(error)
            continue
        known |= {word.split()[0] for word in said}
        composed += 1
    missing = sorted(f for f in known - megatron if f'"{f}"' not in source)
    return {"recipes": composed, "refused": refused, "flags": len(known), "unknown": missing}


def main() -> None:
    if RANKS > 1:
        dist.init_process_group("gloo")
        result = two_ranks()
        dist.destroy_process_group()
        Path(OUT).with_suffix(f".{RANK}").write_text(json.dumps(result))
        return
    result = {
        "estimators": estimators(),
        "against slime": against_slime(),
        "refusals": refusals(),
        "flags": flags(),
    }
    with tempfile.TemporaryDirectory() as folder:
        said = str(Path(folder, "ranks.json"))
        env = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
        parts = [
            subprocess.Popen([sys.executable, __file__, CHECKOUT, said], env=env | {"RANK": str(r)})
            for r in range(2)
        ]
        assert [p.wait(300) for p in parts] == [0, 0]
        found = [json.loads(Path(said).with_suffix(f".{r}").read_text()) for r in range(2)]
    result["two ranks"] = {
        "estimators": found[0]["estimators"],
        "worst": max(f["worst"] for f in found),
    }
    Path(OUT).write_text(json.dumps(result, indent=1))
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
