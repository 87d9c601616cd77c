"""What rlzoo makes of a model, held against plain transformers: each row alone, without padding,
eager attention, float32.

A cell of the table is right (its error is within tolerance), refused or noted (in rlzoo's own
line), or wrong.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from helpers.architectures import TOKENIZER, columns_of, ragged
from invariants.architecture_table.configs import ATTENTION, EOS, config_of
from rlzoo.errors import ModelError, first_line
from rlzoo.lm.build import build_world
from rlzoo.lm.world import World
from rlzoo.mdp.batch import left_pad
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.step.update import gradients
from rlzoo.train.record import save_model

TEMPERATURE, ENTROPY_COEF, CLIP = 0.7, 0.1, 0.2
WORDS = [
    *("recipe=ppo_gae", "device=cpu", "task=addition_mixed", "value_loss=mse"),
    *(f"rollout.temperature={TEMPERATURE}", f"actor.entropy_coef={ENTROPY_COEF}"),
]
NEW = 20  # tokens that are sampled
SAMPLING = {"sampling": (0, 1.0), "top-k": (5, 1.0), "top-p": (0, 0.6), "top-k and top-p": (5, 0.6)}
# Cell -> the largest error that is right. Of log-probs, entropy, values: absolute; of gradients:
# over the largest entry.
TOLERANCE = {
    "log-probs": 1e-4,
    "entropy": 1e-4,
    "values": 1e-4,
    "actor gradient": 1e-4,
    "critic gradient": 1e-4,
    **dict.fromkeys(SAMPLING, 1e-4),
    "checkpointing": 1e-5,
    "export": 1e-4,
}
# Words of a note that tells of a cell: what is outside tolerance and told so is not silent.
TOLD = {
    **dict.fromkeys(SAMPLING, "old_log_probs"),
    "checkpointing": "checkpointing",
    "export": "sav",
}
# Defaults of a model that must not leak into the policy.
GENERATION = {
    "do_sample": True,
    "repetition_penalty": 1.3,
    "top_k": 3,
    "top_p": 0.5,
    "temperature": 0.3,
    "no_repeat_ngram_size": 2,
    "eos_token_id": EOS,
    "pad_token_id": TOKENIZER.pad_token_id,
}


@dataclass
class Cell:
    """kind: right, noted, refused or wrong. text: rlzoo's line, or what is wrong."""

    kind: str
    error: float | None = None
    text: str = ""


@dataclass
class Row:
    """An architecture: its cells by name, what rlzoo notes of it, and whether a pass reads a
    group's prompt once (None: it was not built)."""

    name: str
    cells: dict[str, Cell]
    notes: list[str]
    trees: bool | None

    def wrong(self) -> dict[str, Cell]:
        return {name: cell for name, cell in self.cells.items() if cell.kind == "wrong"}

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self), indent=1), encoding="utf-8")

    @classmethod
    def load(cls, file: Path) -> "Row":
        found = json.loads(file.read_text(encoding="utf-8"))
        return cls(**found | {"cells": {n: Cell(**c) for n, c in found["cells"].items()}})


def check(name: str, folder: Path, zoo: Any, new: int = NEW) -> Row:
    """The row of the architecture `name`, whose model is written into `folder` first.

    new: how many tokens are sampled.
    """
    write_model(name, folder)
    asked = list(TOLERANCE)
    try:
        case = Case(folder, zoo, ATTENTION.get(name, "eager"), new)
    except ModelError as error:
        return Row(
            name, dict.fromkeys(asked, Cell("refused", None, without(str(error), folder))), [], None
        )
    except Exception as error:  # a stranger's model: whatever it raises goes into the table
        return Row(name, dict.fromkeys(asked, Cell("wrong", None, crash(error))), [], None)
    found = {cell: case.cell(cell) for cell in asked}
    return Row(name, found, case.notes, not case.models.policy.traits.no_trees)


def without(line: str, folder: Path) -> str:
    """rlzoo's line without the folder that it names."""
    return line.replace(f"{folder}: ", "").replace(str(folder), "the model")


def crash(error: Exception) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = "" if trace is None else f" at {Path(trace.tb_frame.f_code.co_filename).name}"
    return f"{type(error).__name__}: {first_line(error)}{where}"


def write_model(name: str, folder: Path, seed: int = 0) -> None:
    """A random model with its tokenizer; biases and norms are random too, so that errors show."""
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config_of(name))
        with torch.no_grad():
            for weight in model.parameters():
                if weight.ndim == 1:
                    weight.add_(0.1 * torch.randn_like(weight))
    model.save_pretrained(folder)
    TOKENIZER.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps(GENERATION), encoding="utf-8")


# ---------------------------------------------------------------- plain transformers


class Plain:
    """The model as transformers has it, a row at a time."""

    def __init__(self, folder: Path, attention: str):
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(folder, attn_implementation=attention)
        self.model.eval()
        # In eval mode RWKV halves weights in place, some layers at a time, which changes no logit
        # but every gradient; what is trained and saved are the weights as they are on disk.
        if hasattr(self.model.config, "rescale_every"):
            self.model.config.rescale_every = 0
        self._read: dict[str, Tensor] = {}
        self._single, self._tried = True, 0
        head, trunk = self.model.get_output_embeddings(), self.model.base_model
        head.register_forward_pre_hook(lambda module, given: self._read.update(head=given[0]))
        if trunk is not self.model:
            trunk.register_forward_hook(lambda module, given, out: self._read.update(trunk=out[0]))

    def __call__(self, ids: list[int]) -> tuple[Tensor, Tensor]:
        """(log pi (L, V), hidden states (L, H)) of one row: the trunk's output, or where the model
        reads a part of its trunk only, the head's input."""
        logits = self.model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        hidden = self._read.get("trunk", self._read["head"])
        return (logits / TEMPERATURE).log_softmax(-1), hidden[0]

    @torch.no_grad()
    def before(self, prompt: list[int], response: list[int]) -> Tensor:
        """log pi (n, V) before each token of the response, by a pass over what stands there; by a
        single one where the first token and one in the middle of the first two rows tell no
        difference."""
        n = len(response)
        whole = self(prompt + response)[0][len(prompt) - 1 : -1]
        for t in (0, n // 2) if self._tried < 2 else ():
            near = (self(prompt + response[:t])[0][-1] - whole[t]).abs().max() <= 1e-5
            self._single = self._single and bool(near)
        self._tried += 1
        if self._single:
            return whole
        return torch.stack([self(prompt + response[:t])[0][-1] for t in range(n)])

    def gradient(self, suffix: str) -> Tensor:
        """The gradient of the weight whose name ends so; of the outermost, if there are more."""
        weights = dict(self.model.named_parameters())
        weight = weights[min((n for n in weights if f".{n}".endswith(f".{suffix}")), key=len)]
        return torch.zeros_like(weight) if weight.grad is None else weight.grad


def truncated(log_pi: Tensor, top_k: int, top_p: float) -> Tensor:
    """log pi (V,) as transformers truncates it: top-k, then the nucleus of what that left."""
    from transformers import TopKLogitsWarper, TopPLogitsWarper

    scores = log_pi[None]
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    return scores[0].log_softmax(-1)


# ---------------------------------------------------------------- a model's cells


class Case:
    """The models of one folder, rows for them, and how far both ways are apart."""

    def __init__(self, folder: Path, zoo: Any, attention: str = "eager", new: int = NEW):
        self.folder, self.zoo, self.attention, self.new = folder, zoo, attention, new
        self.models = self.build()
        self.plain = Plain(folder, attention)
        generator = torch.Generator().manual_seed(3)
        self.prompts, self.responses, groups = ragged(12, each=3)
        columns = columns_of(
            self.prompts, self.responses, left=2, right=1, groups=groups, holes=0.2
        )
        shape = columns["response_mask"].shape
        self.columns = columns | {
            "advantages": torch.randn(shape, generator=generator),
            "returns": torch.randn(shape, generator=generator),
        }
        # Of an older policy: some ratios are clipped, some not.
        gap = 0.3 * torch.randn(shape, generator=generator)
        with torch.no_grad():
            scored = [self.scored(i)["log_probs"] for i in range(12)]
        old = torch.nn.utils.rnn.pad_sequence(scored, batch_first=True)
        self.columns["old_log_probs"] = F.pad(old, (0, shape[1] - old.shape[1])) + gap

    def build(self, *words: str) -> World:
        """The models, the critic's head random."""
        words = (*WORDS, f"model.path={self.folder}", *words)
        models = build_world(make_plan(compose(list(words), self.zoo), self.zoo))
        assert models.policy.eos_ids == EOS
        generator = torch.Generator().manual_seed(2)
        for weight in models.engine.critic.head.parameters():
            weight.data = torch.randn(weight.shape, generator=generator)
        return models

    @property
    def notes(self) -> list[str]:
        return [self.plainly(note) for note in self.models.engine.notes]

    def plainly(self, line: str) -> str:
        return without(line, self.folder)

    def cell(self, name: str) -> Cell:
        """How far the two are apart in what `name` says."""
        try:
            error, text = self.measured(name)
        except ModelError as refused:
            return Cell("refused", None, self.plainly(str(refused)))
        except Exception as error:  # a stranger's model: whatever it raises goes into the table
            return Cell("wrong", None, crash(error))
        if error <= TOLERANCE[name]:
            return Cell("right", error)
        told = [note for note in self.notes if name in TOLD and TOLD[name] in note]
        return Cell("noted", error, told[0]) if told else Cell("wrong", error, text)

    def measured(self, name: str) -> tuple[float, str]:
        if name in SAMPLING:
            return self.sampling(*SAMPLING[name])
        ways: dict[str, Callable[[], float]] = {
            "log-probs": lambda: self.scoring["log_probs"],
            "entropy": lambda: self.scoring["entropy"],
            "values": self.values,
            "actor gradient": self.actor_gradient,
            "critic gradient": self.critic_gradient,
            "checkpointing": self.checkpointing,
            "export": self.export,
        }
        return ways[name](), ""

    def scored(self, i: int) -> dict[str, Tensor]:
        """log_probs and entropy (n,) of row i by plain transformers."""
        prompt, response = self.prompts[i], self.responses[i]
        log_pi = self.plain(prompt + response)[0][len(prompt) - 1 : -1]
        return {
            "log_probs": log_pi.gather(1, torch.tensor(response)[:, None])[:, 0],
            "entropy": -(log_pi.exp() * log_pi).sum(-1),
        }

    def valued(self, i: int) -> Tensor:
        """V (n + 1,) of row i by plain transformers and the critic's head."""
        hidden, head = (
            self.plain(self.prompts[i] + self.responses[i])[1],
            self.models.engine.critic.head,
        )
        return F.linear(hidden[len(self.prompts[i]) - 1 :], head.weight, head.bias)[:, 0]

    @cached_property
    def scoring(self) -> dict[str, float]:
        """The largest error of log-probs and entropy, where the policy chose the token."""
        worst = {"log_probs": 0.0, "entropy": 0.0}
        with torch.no_grad():
            found = self.models.policy.log_prob_stats(self.columns, want=("entropy",))
            for i, mask in enumerate(self.columns["response_mask"]):
                for name, wanted in self.scored(i).items():
                    n = len(wanted)
                    gap = (wanted - found[name][i, :n]) * mask[:n]
                    worst[name] = max(worst[name], float(gap.abs().max()))
        return worst

    @torch.no_grad()
    def values(self) -> float:
        """The largest error of V, before each token and after the last."""
        found, worst = self.models.engine.critic.values(self.columns), 0.0
        for i, response in enumerate(self.responses):
            ours = torch.cat([found["values"][i, : len(response)], found["last_values"][i, None]])
            worst = max(worst, float((ours - self.valued(i)).abs().max()))
        return worst

    def actor_gradient(self) -> float:
        """The largest error of the gradient of ppo_clip and entropy, over its largest entry."""
        self.plain.model.zero_grad()
        mask = self.columns["response_mask"]
        for i, response in enumerate(self.responses):
            row = {n: x[i, : len(response)] for n, x in self.columns.items() if x.ndim == 2}
            scored, weight = self.scored(i), mask[i, : len(response)] / mask.sum()
            ratio, gain = (scored["log_probs"] - row["old_log_probs"]).exp(), row["advantages"]
            gain = torch.minimum(ratio * gain, ratio.clamp(1 - CLIP, 1 + CLIP) * gain)
            (-weight * (gain + ENTROPY_COEF * scored["entropy"])).sum().backward()
        gradients(self.models.engine, self.models.plan, self.columns, 0.0, ("actor",))
        return self.apart(self.models.policy.model)

    def critic_gradient(self) -> float:
        """The same of the critic's squared error."""
        self.plain.model.zero_grad()
        mask = self.columns["response_mask"]
        for i, response in enumerate(self.responses):
            weight = mask[i, : len(response)] / mask.sum()
            gap = self.valued(i)[:-1] - self.columns["returns"][i, : len(response)]
            (weight * 0.5 * gap.square()).sum().backward()
        gradients(self.models.engine, self.models.plan, self.columns, 0.0, ("critic",))
        return self.apart(self.models.engine.critic.trunk)

    def apart(self, network: Any) -> float:
        """The largest error of a network's gradient, over its largest entry."""
        return relative([(g, self.plain.gradient(name)) for name, g in gradients_of(network)])

    def sampling(self, top_k: int, top_p: float) -> tuple[float, str]:
        """Of each sampled token: the log-probs that come with it, and whether the cumulative
        distribution passes its uniform there, by a full pass over each row alone."""
        policy = self.models.policy
        prompts = ragged(8, prompt=(1, 10), seed=5)[0]
        prompts[0], prompts[1], prompts[3] = prompts[0][:1], (prompts[1] * 10)[:10], prompts[2]
        ids, mask = left_pad(prompts, policy.pad_id, policy.device)
        uniforms = torch.rand(8, self.new, generator=torch.Generator().manual_seed(6))
        cut = replace(policy, top_k=top_k, top_p=top_p)
        found = cut.generate(ids, mask, uniforms)
        drawn, errors = found["response_ids"].tolist(), []
        room = torch.as_tensor(policy.room(mask, self.new)).flatten().expand(8)  # of each row
        for i, (prompt, response) in enumerate(zip(prompts, drawn, strict=True)):
            response = response[: room[i]]
            ends = [t for t, token in enumerate(response) if token in EOS]
            response = response[: ends[0] + 1] if ends else response
            errors.append(float("inf"))  # it ended without a reason
            if ends or len(response) == room[i]:
                mine = {n: x[i, : len(response)] for n, x in found.items()}
                log_pi = self.plain.before(prompt, response)
                errors[-1] = off_draws(mine, log_pi, uniforms[i], top_k, top_p)
        bad = sum(not error <= TOLERANCE["sampling"] for error in errors)
        return max(errors), f"in {bad} of {len(errors)} rows"

    def checkpointing(self) -> float:
        """The gradient with activations computed again in the backward pass, against without."""
        again = self.build("model.gradient_checkpointing=true")
        known = self.models.engine.notes
        known.extend(note for note in again.engine.notes if note not in known)
        worst = 0.0
        for name in ("actor", "critic"):
            for models in (self.models, again):
                gradients(models.engine, models.plan, self.columns, 0.0, (name,))
            pairs = [
                (theirs, ours)
                for (_, ours), (_, theirs) in zip(
                    gradients_of(self.models.engine.networks[name]),
                    gradients_of(again.engine.networks[name]),
                    strict=True,
                )
            ]
            worst = max(worst, relative(pairs))
        return worst

    def export(self) -> float:
        """Log-probs and greedy tokens of what is saved and loaded by transformers, after each
        weight has changed, against the plain model with that change."""
        mine, theirs = self.models, self.plain
        mine.policy.log_probs(self.columns)  # whatever a pass does to weights it has done
        weights = [*mine.policy.model.parameters(), *theirs.model.parameters()]
        before = [weight.data.clone() for weight in weights]
        try:
            return self._export(mine, theirs, weights)
        finally:
            for weight, kept in zip(weights, before, strict=True):
                weight.data.copy_(kept)

    def _export(self, mine: World, theirs: Plain, weights: list[Any]) -> float:
        for weight in weights:
            weight.data.mul_(1.05)
        place = self.folder / "exported"
        save_model(mine, place)
        loaded, worst = Plain(place, self.attention), 0.0
        assert loaded.model.generation_config.eos_token_id == EOS
        assert loaded.model.generation_config.repetition_penalty in (None, 1.0)
        with torch.no_grad():
            for prompt, response in zip(self.prompts[::3], self.responses[::3], strict=True):
                ids = prompt + response
                worst = max(worst, float((loaded(ids)[0] - theirs(ids)[0]).abs().max()))
                for _ in range(5):
                    tokens = [int(model(ids)[0][-1].argmax()) for model in (loaded, theirs)]
                    if tokens[0] != tokens[1]:
                        return float("inf")
                    ids = [*ids, tokens[0]]
        return worst


def off_draws(
    drawn: dict[str, Tensor], log_pi: Tensor, uniforms: Tensor, top_k: int, top_p: float
) -> float:
    """How far a row's tokens (n,) are from where their uniforms say under log pi (n, V), and their
    log-probs from what they should be."""
    token = drawn["response_ids"][:, None]
    log_mu = torch.stack([truncated(x, top_k, top_p) for x in log_pi])
    p = log_mu.double().exp()
    high = p.cumsum(1).gather(1, token)[:, 0]
    low, u = high - p.gather(1, token)[:, 0], uniforms[: len(token)]
    errors = [low - u, u - high]
    for name, wanted in (("sampler_log_probs", log_mu), ("old_log_probs", log_pi)):
        errors.append((drawn[name] - wanted.gather(1, token)[:, 0]).abs())
    return max(0.0, *(float(error.max()) for error in errors))


def gradients_of(network: Any) -> Iterator[tuple[str, Tensor]]:
    """Names and gradients of what is trained."""
    for name, weight in network.named_parameters():
        yield name, torch.zeros_like(weight) if weight.grad is None else weight.grad.clone()


def relative(pairs: list[tuple[Tensor, Tensor]]) -> float:
    """The largest error of `pairs` (found, wanted), over the largest that is wanted."""
    largest = max(float(wanted.abs().max()) for _, wanted in pairs)
    errors = [float((found - wanted).abs().max()) / largest for found, wanted in pairs]
    return float("nan") if any(e != e for e in errors) else max(errors)
