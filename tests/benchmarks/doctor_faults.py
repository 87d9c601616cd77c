"""How often `rlzoo doctor` notices a planted fault, names its cause, and alarms where nothing is.

    python tests/benchmarks/doctor_faults.py --seed 7          # train, judge, print the tables
    python tests/benchmarks/doctor_faults.py --seed 7 --judge  # judge again what is there

Faults are settings of the recipe, or bugs patched into a component of the zoo. Each run is a fork
of one process that has imported everything, on one thread, and its folder is kept under --out, so
that rules can be judged again in a second. `noticed`: a warning or a problem, or the run was
refused with the cause in the message. `cause`: the first finding speaks of what was planted.
`--set others` plants faults of the same kinds on which no rule was tuned.
"""

import argparse
import json
import os
import re
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from doctor_blind import forked, load_all, trained

SMALL = [
    "model=nano",
    "rollout.prompts=16",
    "train.steps=24",
    "eval.samples=256",
    "eval.every=8",
    "device=cpu",
    "checkpoint.every=0",
    "run.threads=1",
]


class Case(NamedTuple):
    """`says`: a pattern that the first finding, or the refusal, must match; none for a healthy run.
    `patch`: plants a bug, of (zoo)."""

    name: str
    recipe: str
    words: str
    says: str = ""
    patch: Any = None


# ---------------------------------------------------------------- bugs


def remake(zoo, kind, name, change):
    """A component whose output is changed: change(output, columns)."""
    c = zoo.shelves[kind][name]
    plain = c.function

    def function(*inputs, **options):
        return change(plain(*inputs, **options), dict(zip(c.needs, inputs, strict=True)))

    object.__setattr__(c, "function", function)  # of a frozen dataclass, in a process of its own


def reward(change):
    """The verifier's reward changed: change(scores (B, T), generator)."""
    import torch

    def plant(zoo):
        draw = torch.Generator().manual_seed(5)
        remake(zoo, "rewards", "verifier", lambda out, _: change(out, draw))

    return plant


def at_first(out):
    """A row's score, paid for its first token."""
    import torch

    return torch.cat([out.sum(1, keepdim=True), torch.zeros_like(out[:, 1:])], 1)


def next_row(out):
    """Each response has the score of the one after it."""
    return out.sum(1).roll(1)  # (B,): the core puts it at each row's last action


def of_text(score):
    """A reward of the text alone: score(prompt, response, answer)."""
    import torch

    def plant(zoo):
        def verifier(prompts, responses, answers):
            rows = zip(prompts, responses, answers, strict=True)
            return torch.tensor([float(score(*row)) for row in rows])

        c = zoo.rewards["verifier"]
        object.__setattr__(c, "function", verifier)
        object.__setattr__(c, "needs", ("prompts", "responses", "answers"))

    return plant


def coin(zoo):
    import torch

    draw = torch.Generator().manual_seed(5)
    of_text(lambda *_: torch.rand((), generator=draw) < 0.4)(zoo)


def advantages(change):
    """What the recipe's estimator gives, changed."""

    def plant(zoo):
        for name in list(zoo.estimators):
            remake(
                zoo,
                "estimators",
                name,
                lambda out, x: (
                    (change(out[0]), *out[1:]) if isinstance(out, tuple) else change(out)
                ),
            )

    return plant


def stale_log_probs(zoo):
    """old_log_probs are of the policy a step before."""
    from rlzoo.step import trainer

    plain, kept = trainer.Trainer.update, {}

    def update(self, experience, progress=0.0):
        import torch

        if "weights" in kept:
            now = {k: v.clone() for k, v in self.world.policy.model.state_dict().items()}
            self.world.policy.model.load_state_dict(kept["weights"])
            with torch.no_grad():
                stats = self.world.engine.scores(experience.batch, ("log_probs",))
            self.world.policy.model.load_state_dict(now)
            experience.batch.data["old_log_probs"] = stats["log_probs"]
        model = self.world.policy.model
        kept["weights"] = {k: v.clone() for k, v in model.state_dict().items()}
        return plain(self, experience, progress)

    trainer.Trainer.update = update


def noisy_log_probs(zoo):
    """old_log_probs in a precision of two digits."""
    from rlzoo.step import trainer

    plain = trainer.Trainer.update

    def update(self, experience, progress=0.0):
        old = experience.batch["old_log_probs"]
        experience.batch.data["old_log_probs"] = (old * 8).round() / 8
        return plain(self, experience, progress)

    trainer.Trainer.update = update


def frozen_sampler(zoo):
    """Samples come from the weights that the run began with."""
    import torch

    from rlzoo.lm.policy import Policy

    plain, kept = Policy.generate, {}

    def generate(self, *args, **more):
        if "first" not in kept:
            kept["first"] = {k: v.clone() for k, v in self.model.state_dict().items()}
        now = {k: v.clone() for k, v in self.model.state_dict().items()}
        self.model.load_state_dict(kept["first"])
        try:
            with torch.no_grad():
                return plain(self, *args, **more)
        finally:
            self.model.load_state_dict(now)

    Policy.generate = generate


def values_of_noise(zoo):
    """The critic is read, and what comes is noise."""
    import torch

    from rlzoo.lm.critic import Critic

    plain, draw = Critic.values, torch.Generator().manual_seed(5)

    def values(self, *args, **more):
        found = plain(self, *args, **more)
        v = found["values"]
        return {**found, "values": v + torch.randn(v.shape, generator=draw).to(v)}

    Critic.values = values


def values_off(zoo):
    """A critic that is a constant off whatever it learns."""
    from rlzoo.lm.critic import Critic

    plain = Critic.values

    def values(self, *args, **more):
        found = plain(self, *args, **more)
        return {**found, "values": found["values"] + 3}

    Critic.values = values


def one_prompt(zoo):
    from rlzoo_zoo.tasks import addition

    plain = addition.Addition.draw

    def draw(self, split, n, generator):
        found = plain(self, split, n, generator)
        return [found[0]] * n if split == "train" else found

    addition.Addition.draw = draw


def too_hard(zoo):
    """Right answers that nothing can hit."""
    import rlzoo
    from rlzoo_zoo.tasks import addition

    plain = addition.Addition.draw

    def draw(self, split, n, generator):
        return [
            rlzoo.Example(e.prompt, e.answer + "77", e.index)
            for e in plain(self, split, n, generator)
        ]

    addition.Addition.draw = draw


def nan_reward(out, draw):
    out = out.clone()
    out[0, -1] = float("nan")
    return out


# ---------------------------------------------------------------- the cases

A, K, D, M = "task=addition", "task=key_door", "task=reverse_dense", "task=addition_mixed"

RATE = r"actor\.lr"
CRITIC = r"critic"
WRONG_REWARD = r"reward_does_not_measure_correctness"

FAULTS = [
    Case("lr x20", "ppo_gae", f"{A} actor.lr=4e-3", RATE),
    Case("lr x15 grpo", "grpo", f"{A} actor.lr=3e-3", RATE),
    Case("lr x100", "ppo_gae", f"{A} actor.lr=0.02", RATE),
    Case("lr x5000", "ppo_gae", f"{A} actor.lr=1.0", RATE),
    Case("lr 0", "ppo_gae", f"{A} actor.lr=0", RATE),
    Case("lr tiny", "grpo", f"{A} actor.lr=2e-8", RATE),
    Case("warm-up forever", "ppo_gae", f"{A} train.critic_warmup=1000", r"critic_warmup"),
    Case("lr warm-up forever", "rloo", f"{A} actor.lr_warmup=100000", r"lr_warmup"),
    Case("grad clip 1e-6", "ppo_gae", f"{A} actor.max_grad_norm=1e-6", r"max_grad_norm"),
    Case(
        "clip .0005",
        "ppo_gae",
        f"{A} policy_loss.clip_low=0.0005 policy_loss.clip_high=0.0005",
        r"policy_loss\.clip",
    ),
    Case("weight decay 300", "ppo_gae", f"{A} actor.weight_decay=300", r"weight_decay"),
    Case("kl.coef=10 ppo", "ppo_gae", f"{A} kl.coef=10", r"kl\.coef"),
    Case("kl.coef=10 grpo", "grpo", f"{A} kl.coef=10", r"kl\.coef"),
    Case("entropy_coef=1", "ppo_gae", f"{A} actor.entropy_coef=1", r"entropy_coef"),
    Case("temperature 3", "ppo_gae", f"{A} rollout.temperature=3", r"temperature"),
    Case("top_p .5", "grpo", f"{A} rollout.top_p=0.5", r"top_p"),
    Case("top_k 1", "grpo", f"{A} rollout.top_k=1", r"top_k"),
    Case("epochs 30", "ppo_gae", f"{A} train.epochs=30 train.steps=9", r"train\.epochs"),
    Case("truncation ppo", "ppo_gae", "task=reverse rollout.max_new_tokens=2", r"max_new_tokens"),
    Case("truncation grpo", "grpo", f"{A} rollout.max_new_tokens=2", r"max_new_tokens"),
    Case("eval.samples=16", "ppo_gae", f"{A} eval.samples=16", r"eval\.samples"),
    Case("critic.lr=0 gae", "ppo_gae", f"{K} critic.lr=0 estimator.lam=0.5", r"critic\.lr"),
    Case("critic.lr=0 td0", "ppo_td0", f"{A} critic.lr=0", r"critic\.lr"),
    Case("critic.lr=.1 td0", "ppo_td0", f"{A} critic.lr=0.1", r"critic\.lr"),
    Case("critic exploding", "ppo_gae", f"{A} critic.lr=3", r"critic\.lr"),
    Case("td0 critic, addition", "ppo_td0", A, CRITIC),
    Case("td0 critic, reverse", "ppo_td0", "task=reverse", CRITIC),
    Case("gae lam=0, key_door", "ppo_gae", f"{K} estimator.lam=0", CRITIC),
    Case("reward constant", "ppo_gae", A, r"same|constant", of_text(lambda *_: 0.5)),
    Case("reward zero", "grpo", A, r"same|constant", of_text(lambda *_: 0)),
    Case("NaN reward", "ppo_gae", A, r"(?i)nan|finite", reward(nan_reward)),
    Case("reward x1000", "ppo_gae", A, r"scale|large|size", reward(lambda o, _: 1000 * o)),
    Case("coin reward", "grpo", A, WRONG_REWARD, coin),
    Case("reward of the next row", "rloo", A, WRONG_REWARD, reward(lambda o, _: next_row(o))),
    Case(
        "reward at the first token",
        "ppo_gae",
        A,
        r"wrong_index|token",
        reward(lambda o, _: at_first(o)),
    ),
    Case("reward of wrong sign", "ppo_gae", A, WRONG_REWARD, reward(lambda o, _: -o)),
    Case("wrong sign, grpo", "grpo", A, WRONG_REWARD, of_text(lambda p, r, a: r != a)),
    Case(
        "length hacking",
        "ppo_gae",
        "task=reverse",
        WRONG_REWARD,
        of_text(lambda p, r, a: len(r) / 7),
    ),
    Case("length hacking, short", "grpo", A, WRONG_REWARD, of_text(lambda p, r, a: -len(r) / 5)),
    Case("advantage sign", "grpo", A, r"advantage", advantages(lambda a: -a)),
    Case("stale old_log_probs", "ppo_gae", A, r"old_log_probs", stale_log_probs),
    Case(
        "stale, one minibatch",
        "grpo",
        f"{A} train.minibatches=1",
        r"old_log_probs",
        stale_log_probs,
    ),
    Case("frozen sampler", "ppo_gae", A, r"sampler|sampled", frozen_sampler),
    Case("one prompt", "grpo", A, r"prompt", one_prompt),
    Case("too hard", "grpo", f"{A} task.digits=5 rollout.max_new_tokens=7", r"hard|right|same"),
]

OTHERS = [  # of the same kinds; rules were not tuned on them
    Case("kl.coef=3 rloo", "rloo", f"{A} kl.coef=3", r"kl\.coef"),
    Case(
        "adaptive KL, tiny target",
        "ppo_gae",
        f"{A} kl.controller=adaptive kl.target=1e-5 kl.horizon=20",
        r"kl\.",
    ),
    Case("entropy .3 grpo", "grpo", f"{A} actor.entropy_coef=0.3", r"entropy_coef"),
    Case("eps 1", "ppo_gae", f"{A} actor.eps=1", r"actor\.eps"),
    Case("temperature .1", "grpo", f"{A} rollout.temperature=0.1", r"temperature"),
    Case("temperature 5 rloo", "rloo", f"{A} rollout.temperature=5", r"temperature"),
    Case("lr x50 rloo", "rloo", f"{K} actor.lr=0.01", RATE),
    Case("lr 1e-9", "ppo_mc", f"{K} actor.lr=1e-9", RATE),
    Case(
        "minibatches 64, lr x5",
        "ppo_gae",
        f"{A} train.minibatches=64 actor.lr=2e-3",
        r"train\.minibatches|actor\.lr",
    ),
    Case("reward weight -1", "grpo", f"{A} rewards.verifier.weight=-1", r"weight"),
    Case(
        "reward weight 1e-9", "ppo_gae", f"{A} rewards.verifier.weight=1e-9", r"weight|scale|size"
    ),
    Case("gamma .3", "ppo_mc", f"{K} estimator.gamma=0.3", r"gamma"),
    Case("truncation 1", "rloo", f"{A} rollout.max_new_tokens=1", r"max_new_tokens"),
    Case(
        "critic clipped to nothing",
        "ppo_td0",
        f"{A} critic.max_grad_norm=1e-7",
        r"critic\.max_grad_norm|critic_explains",
    ),
    Case(
        "critic.weight_decay",
        "ppo_td0",
        f"{A} critic.weight_decay=500",
        r"critic\.weight_decay|critic_explains",
    ),
    Case("values of noise", "ppo_gae", A, r"critic|values", values_of_noise),
    Case("values off by 3", "ppo_td0", f"{A} train.steps=8", r"critic|values", values_off),
    Case("noisy old_log_probs", "rloo", A, r"old_log_probs", noisy_log_probs),
    Case("advantage sign, gae", "ppo_gae", K, r"advantage", advantages(lambda a: -a)),
    Case("advantages lost", "rloo", A, r"advantage", advantages(lambda a: 0 * a)),
    Case("advantages of noise", "grpo", A, r"advantage", advantages(lambda a: a.flip(0))),
    Case("frozen sampler, grpo", "grpo", f"{A} actor.lr=1e-3", r"sampler|sampled", frozen_sampler),
    Case(
        "vowel reward",
        "ppo_gae",
        "task=reverse",
        WRONG_REWARD,
        of_text(lambda p, r, a: sum(c in "aeiou" for c in r) / 7),
    ),
    Case("answers nobody can hit", "ppo_gae", A, r"hard|right|same", too_hard),
    Case("eval.samples=8", "grpo", f"{A} eval.samples=8", r"eval\.samples"),
]

_LONG = "train.steps=60 eval.every=20"
HEALTHY = [
    Case("", recipe, words)
    for recipe, words in [
        *(("ppo_gae", t) for t in (A, K, "task=reverse", D, M)),
        *(("grpo", t) for t in (A, K, "task=reverse", M)),
        *(("rloo", t) for t in (A, K, D)),
        ("ppo_mc", A),
        ("ppo_mc", K),
        ("dapo", A),
        ("dr_grpo", "task=reverse"),
        ("gspo", A),
        ("gpg", A),
        ("opo", A),
        ("otb", A),
        ("reinforce_pp", A),
        ("reinforce_pp_baseline", K),
        ("remax", A),
        ("maxrl", A),
        ("cispo", A),
        ("gmpo", A),
        ("sapo", A),
        ("vapo", A),
        ("vc_ppo", A),
        ("impala", A),
        ("pkpo", A),
        ("turn_gae", "model=turns rollout.prompts=8"),
        ("ppo_gae", f"{A} {_LONG}"),
        ("grpo", f"{A} {_LONG}"),
        ("rloo", f"{A} {_LONG}"),
        ("ppo_gae", f"{A} model=tiny"),
        ("grpo", f"{A} model=tiny"),
        ("ppo_gae", f"{A} train.epochs=2 critic.trunk=shared"),
        ("ppo_gae", f"{K} kl.controller=adaptive actor.lr=5e-4"),
        ("grpo", f"{M} rollout.samples=8 rollout.prompts=8 actor.lr_schedule=cosine"),
    ]
]
HEALTHY = [c._replace(name=f"{i} {c.recipe} {c.words}") for i, c in enumerate(HEALTHY)]
SETS = {"faults": FAULTS, "healthy": HEALTHY, "others": OTHERS}


# ---------------------------------------------------------------- running and judging


def folder_of(out: Path, group: str, seed: int, case: Case) -> Path:
    return out / f"{group}-{seed}" / re.sub(r"[^\w.=-]+", "_", case.name)


def train(case: Case, folder: Path, seed: int, zoo: Any) -> None:
    import rlzoo

    if case.patch:
        case.patch(zoo)
    words = [*SMALL, *case.words.split(), f"seed={seed}"]
    rlzoo.run(case.recipe, [*words, f"run.dir={folder}", "run.overwrite=true"], zoo=zoo)


def judge(case: Case, folder: Path) -> dict[str, Any]:
    from rlzoo.runs.folder import open_folder
    from rlzoo_lab.doctor.command import examine
    from rlzoo_lab.doctor.series import read_run

    if (folder / "refused.txt").exists():
        text = (folder / "refused.txt").read_text()
        return {"noticed": True, "cause": bool(re.search(case.says, text)), "text": text}
    findings = [f for f in examine(read_run(open_folder(str(folder))))[0] if f.severity != "note"]
    first = f"{findings[0].rule}: {findings[0].what} {findings[0].advice}" if findings else ""
    named = f"{findings[0].rule}: {findings[0].what}" if findings else ""
    others = [f.rule for f in findings[1:]]
    return {"noticed": bool(findings), "text": first, "others": others,
            "cause": bool(findings and case.says and re.search(case.says, named))}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", default="faults,healthy")
    parser.add_argument("--out", type=Path, default=Path("/tmp/doctor-runs"))
    parser.add_argument("--judge", action="store_true", help="judge what is there, train nothing")
    parser.add_argument("--only", default="", help="cases whose name matches")
    parser.add_argument("--all", action="store_true", help="print what is right, too")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    began, cases = time.time(), []
    for group in asked.set.split(","):
        cases += [(group, c) for c in SETS[group] if re.search(asked.only, c.name)]
    zoo = None
    if not asked.judge:
        zoo = load_all()
    totals: dict[str, list[dict[str, Any]]] = {}
    for i, (group, case) in enumerate(cases):
        seed = asked.seed + (1000 * (i + 1) if group == "healthy" else 0)
        folder = folder_of(asked.out, group, asked.seed, case)
        if not asked.judge and not trained(folder):
            forked(folder, partial(train, case, folder, seed, zoo))
        if not trained(folder):
            print(f"   (not there: {case.name})")
            continue
        found = judge(case, folder)
        totals.setdefault(group, []).append({"name": case.name, **found})
        good = not found["noticed"] if group == "healthy" else found["cause"]
        mark = (
            "ok "
            if good
            else "ALARM"
            if group == "healthy"
            else ("wrong" if found["noticed"] else "MISSED")
        )
        if not good or asked.all:
            print(f"{mark:6} {case.name}: {found['text']} {found.get('others', '')}", flush=True)
    for group, rows in totals.items():
        noticed, cause = (sum(r[k] for r in rows) for k in ("noticed", "cause"))
        if group == "healthy":
            print(f"{group}: {len(rows)} runs, {noticed} alarmed")
        else:
            print(f"{group}: {len(rows)} planted, {noticed} noticed, {cause} with the right cause")
    spent = sum(os.times()[:4])
    print(f"seed {asked.seed}; {time.time() - began:.0f} s, {spent:.0f} CPU s")
    if asked.json:
        asked.json.write_text(json.dumps(totals, indent=1))


if __name__ == "__main__":
    main()
