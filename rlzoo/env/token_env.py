"""The token MDP for gymnasium: one episode at a time, many at a time, and KL in the reward.

State: prompt and tokens so far. Action: the next token. Endings and scores are `rlzoo.mdp`'s, by
which the sampler goes as well. An observation is laid out like a row of a batch,

    padding | prompt | response so far | padding        (max_prompt + max_new_tokens)

so the response begins at index `max_prompt` whatever the prompt, and the action at time t is
chosen from the logits at index `max_prompt - 1 + t`.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Discrete
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from torch import Tensor

from rlzoo import mdp
from rlzoo.columns import nearest
from rlzoo.component import Component, Example, RlzooError, needs_of
from rlzoo.model import Policy
from rlzoo.plan import Bound, Plan, make_plan
from rlzoo.pretrained import PromptFormat, eos_ids, load_config, load_tokenizer, resolve_path
from rlzoo.recipe import compose
from rlzoo.registry import load_zoo
from rlzoo.turns import Conversation, Turns, begin

RESET_OPTIONS = ("prompt", "answer", "split", "noise")
SAMPLE = 256  # prompts drawn to see how long they are
TOLERANCE = 1e-5


# ---------------------------------------------------------------- what an episode goes by


@dataclass(frozen=True)
class Rules:
    """A plan's task and rewards, with what a model's folder says of tokens. No weights."""

    plan: Plan
    tokenizer: Any
    form: PromptFormat
    eos_ids: list[int]
    pad_id: int
    vocabulary: int
    max_new_tokens: int
    max_prompt: int
    split: str

    @cached_property
    def turns(self) -> Turns | None:
        """How conversations go, where the task holds any."""
        if not self.plan.conversation:
            return None
        return Turns(self.plan, self.tokenizer, self.eos_ids)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Rules":
        return self  # nothing in it changes, so that copies of an environment (search) are cheap

    @property
    def observation_space(self) -> Box:
        length = self.max_prompt + self.max_new_tokens
        return Box(0, self.vocabulary - 1, (length,), np.int64)

    @property
    def action_space(self) -> Discrete:
        return Discrete(self.vocabulary)


def load_rules(
    task: str | None,
    model: str | None,
    split: str,
    overrides: Sequence[str],
    max_prompt: int | None,
    task_options: Mapping[str, Any],
) -> Rules:
    """What a recipe that sets these keys says; names left out are the defaults'."""
    chosen = {"task": task, "model": model}
    words = [f"{key}={name}" for key, name in chosen.items() if name is not None]
    words += [f"task.{key}={json.dumps(value)}" for key, value in task_options.items()]
    zoo = load_zoo()
    plan = make_plan(compose([*words, *overrides], zoo, need_recipe=False), zoo)
    m = plan.recipe.config.model
    folder = resolve_path(m.path)
    tokenizer = load_tokenizer(folder, trust_remote_code=m.trust_remote_code)
    config = load_config(folder, trust_remote_code=m.trust_remote_code)
    form = PromptFormat(tokenizer, m.chat, m.system)
    if max_prompt is None:
        generator = torch.Generator().manual_seed(0)
        drawn = [Example(*item).prompt for item in plan.task.draw("train", SAMPLE, generator)]
        max_prompt = 2 * max(len(form.encode(prompt)) for prompt in drawn)
    return Rules(
        plan,
        tokenizer,
        form,
        eos_ids(config, tokenizer),
        int(tokenizer.pad_token_id),
        config.get_text_config().vocab_size,
        plan.recipe.config.rollout.max_new_tokens,
        max_prompt,
        split,
    )


class Episodes:
    """Several episodes at once, as columns of a batch that grow token by token."""

    def __init__(self, rules: Rules, rows: int, device: torch.device | str):
        self.rules = rules
        self.device = torch.device(device)
        self.examples: list[Example] = [Example("")] * rows
        limit = rules.max_new_tokens

        def new(value: Any, *shape: int) -> Tensor:
            return torch.full((rows, *shape), value, device=self.device)

        self.prompt_ids = new(rules.pad_id, rules.max_prompt)
        self.prompt_mask = new(0.0, rules.max_prompt)
        self.response_ids = new(rules.pad_id, limit)
        self.lengths = new(0)  # of the response, the environment's tokens included
        self.talks = [Conversation({}) for _ in range(rows)]  # unused where the task holds none
        self.noise, self.paid = new(0.0, limit), new(0.0, limit)
        self.sequence_scores = new(0.0)  # of rows that have ended
        self.terminated, self.truncated = new(True), new(False)  # over, until its first `start`
        self.only_outcomes: bool | None = None  # unknown until something has been scored
        self._check_needs()

    @property
    def ended(self) -> Tensor:
        """(B,)"""
        return self.terminated | self.truncated

    def start(self, row: int, random: np.random.Generator, options: Mapping[str, Any]) -> None:
        """A new episode in one row: with the prompt of `options`, or one drawn by `random`."""
        rules = self.rules
        for key in options:
            if key not in RESET_OPTIONS:
                known = ", ".join(RESET_OPTIONS)
                close = nearest(key, RESET_OPTIONS)
                raise RlzooError(f"reset: no option {key!r}{close} (there are: {known})")
        if options.get("prompt") is not None:
            example = Example(options["prompt"], options.get("answer"))
        else:
            generator = torch.Generator().manual_seed(int(random.integers(2**63)))
            split = options.get("split") or rules.split
            example = Example(*rules.plan.task.draw(split, 1, generator)[0])
        noise = options.get("noise")
        if noise is None and "noise" in rules.plan.needs:
            noise = random.random(rules.max_new_tokens)
        if noise is not None:
            self.noise[row] = torch.as_tensor(noise)
        ids = rules.form.encode(example.prompt)
        if len(ids) > rules.max_prompt:
            raise RlzooError(
                f"prompt {example.prompt!r} has {len(ids)} tokens, more than "
                f"max_prompt={rules.max_prompt}"
            )
        self.examples[row] = example
        self.prompt_ids[row], self.response_ids[row] = rules.pad_id, rules.pad_id
        self.prompt_ids[row, -len(ids) :] = torch.tensor(ids, device=self.device)
        for state in (self.prompt_mask, self.lengths, self.terminated, self.truncated, self.paid):
            state[row] = 0
        self.prompt_mask[row, -len(ids) :] = 1
        if rules.turns is not None:
            told = self._prompt_columns([row])
            (self.talks[row],) = begin(told, 1, rules.max_new_tokens)

    def act(self, rows: Tensor, tokens: Tensor) -> Tensor:
        """Append tokens (R,) to the rows (R,) int64; what each pays, (B,)."""
        rules = self.rules
        if bool(((tokens < 0) | (tokens >= rules.vocabulary)).any()):
            raise ValueError(f"an action is a token id below {rules.vocabulary}. Got {tokens}")
        rewards = torch.zeros(len(self.examples), device=self.device)
        position = self.lengths[rows]
        if rules.turns is None:
            self.response_ids[rows, position] = tokens
            self.lengths[rows] = position + 1
            self.terminated[rows], self.truncated[rows] = mdp.transition(
                tokens, position, rules.eos_ids, rules.max_new_tokens
            )
        else:
            self._converse(rules.turns, rows, tokens)
        ended = self.ended[rows]
        due, last = (rows[ended], position[ended]) if self.only_outcomes else (rows, position)
        if not len(due):
            return rewards
        columns = self.columns(due)
        scored = mdp.score(rules.plan, columns)
        if self.only_outcomes is None:
            self.only_outcomes = mdp.pays_at_the_end(rules.plan, columns)
        rewards[due] = scored["scores"].gather(1, last[:, None]).squeeze(1)
        self.paid[due, last] = rewards[due]
        self.sequence_scores[due] = scored["sequence_scores"]
        self._check_causal(due, columns, scored["scores"])
        return rewards

    def _converse(self, rules: Turns, rows: Tensor, tokens: Tensor) -> None:
        """One token of each row, and what the environment answers where it ends a turn."""
        some = [self.talks[i] for i in rows.tolist()]
        rules.act(some, tokens[:, None].tolist())
        for i, talk in zip(rows.tolist(), some, strict=True):
            begun, self.lengths[i] = int(self.lengths[i]), len(talk.ids)
            new = torch.tensor(talk.ids[begun:], device=self.device)
            self.response_ids[i, begun : len(talk.ids)] = new
            self.terminated[i], self.truncated[i] = talk.terminated, talk.truncated

    def _prompt_columns(self, rows: list[int]) -> dict[str, Any]:
        form, examples = self.rules.form, [self.examples[i] for i in rows]
        return {
            "prompts": [form.text(e.prompt) for e in examples],
            "messages": [form.messages(e.prompt) for e in examples],
            "answers": [e.answer for e in examples],
            "prompt_index": torch.tensor([e.index for e in examples], device=self.device),
        }

    def columns(self, rows: Tensor) -> dict[str, Any]:
        """The rollout's columns of some rows (R,), as long as the longest response so far."""
        rules, picked = self.rules, rows.tolist()
        if rules.turns is not None:
            talks = [self.talks[i] for i in picked]
            columns = rules.turns.columns(talks, rules.pad_id, self.device)
        else:
            lengths = self.lengths[rows]
            width = int(lengths.max())
            mask = (torch.arange(width, device=self.device) < lengths[:, None]).float()
            columns = {
                "response_mask": mask,
                "response_attention": mask,
                "response_ids": self.response_ids[rows, :width],
                "terminated": self.terminated[rows],
                "truncated": self.truncated[rows],
            }
            columns["responses"] = mdp.decode(rules.tokenizer, columns, rules.eos_ids)
            columns["turns"] = [[text] for text in columns["responses"]]
        columns |= self._prompt_columns(picked)
        columns |= {
            "prompt_ids": self.prompt_ids[rows],
            "prompt_mask": self.prompt_mask[rows],
            "group_ids": rows,
        }
        mask = columns["response_mask"]
        columns["noise"] = torch.where(mask.bool(), self.noise[rows, : mask.shape[1]], 0)
        if "response_tokens" in rules.plan.needs:
            columns["response_tokens"] = mdp.decode_tokens(rules.tokenizer, columns, rules.eos_ids)
        return columns

    def observations(self) -> Tensor:
        """(B, max_prompt + max_new_tokens) int64"""
        return torch.cat([self.prompt_ids, self.response_ids], 1)

    def attention_mask(self) -> Tensor:
        """(B, max_prompt + max_new_tokens) int64: 1 on prompt and response, 0 on padding."""
        steps = torch.arange(self.rules.max_new_tokens, device=self.device)
        return torch.cat([self.prompt_mask, steps < self.lengths[:, None]], 1).long()

    def texts(self) -> list[str]:
        """`prompt|response` of each row."""
        columns = self.columns(torch.arange(len(self.examples), device=self.device))
        pairs = zip(columns["prompts"], columns["responses"], strict=True)
        return [f"{prompt}|{response}" for prompt, response in pairs]

    def _check_causal(self, rows: Tensor, columns: Mapping[str, Any], scores: Tensor) -> None:
        """What was paid on the way must be what the whole row is worth, token by token."""
        gap = (scores - self.paid[rows, : scores.shape[1]]).abs() > TOLERANCE
        wrong = (gap.any(1) & self.ended[rows]).nonzero()
        if len(wrong):
            i, t = int(wrong[0]), int(gap[wrong[0, 0]].nonzero()[0])
            raise mdp.RewardError(
                f"the score of token {t} was {self.paid[rows[i], t]:g} when it was chosen and is "
                f"{scores[i, t]:g} at the end: a score per token must not look ahead "
                f"(prompt {columns['prompts'][i]!r}, response {columns['responses'][i]!r})"
            )

    def _check_needs(self) -> None:
        plan = self.rules.plan
        has = {*self.columns(torch.arange(1)), "task_scores"}
        wanted = {f"task {plan.task_name!r}": needs_of(plan.task.score)}
        wanted |= {f"reward {name!r}": bound.needs for name, (_, bound) in plan.rewards.items()}
        for label, needs in wanted.items():
            for need in needs:
                if need not in has:
                    raise RlzooError(f"{label} needs {need!r}, which an environment has not")


# ---------------------------------------------------------------- one at a time


class TokenEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One response to one prompt.

    task, model: names, as in a recipe; None is the default's. Of the model only its tokenizer and
        its config are read.
    split: where prompts are drawn from, "train" or "test".
    overrides: further recipe words, `["rollout.max_new_tokens=4", "rewards.overlong.weight=1"]`.
    max_prompt: room for a prompt, in tokens; None: twice the longest of 256 drawn ones. A longer
        prompt is an error.
    task_options: options of the task, `digits=3`.

    `reset(options=...)` takes prompt (with answer), split, and noise (max_new_tokens uniforms) in
    place of drawn ones. info: prompt, attention_mask, response so far; at the end score, answer.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 10}

    def __init__(
        self,
        task: str | None = None,
        model: str | None = None,
        *,
        split: str = "train",
        overrides: Sequence[str] = (),
        max_prompt: int | None = None,
        render_mode: str | None = None,
        **task_options: Any,
    ):
        self.rules = load_rules(task, model, split, overrides, max_prompt, task_options)
        self.episodes = Episodes(self.rules, 1, "cpu")
        self.action_space = self.rules.action_space
        self.observation_space = self.rules.observation_space
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.episodes.start(0, self.np_random, options or {})
        return self._observe()

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if bool(self.episodes.ended):
            raise ResetNeeded("the episode is over; call reset()")
        reward = self.episodes.act(torch.tensor([0]), torch.tensor([int(action)]))
        observation, info = self._observe()
        ends = bool(self.episodes.terminated), bool(self.episodes.truncated)
        return observation, reward.item(), *ends, info

    def columns(self) -> dict[str, Any]:
        """The episode so far as a batch of one row: what a policy takes."""
        return self.episodes.columns(torch.tensor([0]))

    def render(self) -> str | None:
        """`prompt|response`: returned in mode "ansi", printed in mode "human"."""
        text = self.episodes.texts()[0]
        if self.render_mode == "human":
            print(text)
        return text if self.render_mode == "ansi" else None

    def _observe(self) -> tuple[np.ndarray, dict[str, Any]]:
        episodes, columns = self.episodes, self.columns()
        info = {
            "prompt": columns["prompts"][0],
            "attention_mask": episodes.attention_mask()[0].numpy(),
            "response": columns["responses"][0],
        }
        if bool(episodes.ended):
            info["score"] = episodes.sequence_scores.item()
            info["answer"] = columns["answers"][0]
        if self.render_mode == "human":
            self.render()
        return episodes.observations()[0].numpy(), info


# ---------------------------------------------------------------- many at a time


class TokenVectorEnv(VectorEnv):
    """`num_envs` episodes side by side, stepped and scored as tensors.

    device: None takes and gives numpy arrays, as gymnasium does; "cpu" or "cuda" takes and gives
        torch tensors there, texts as lists.
    autoreset_mode: when a row that has ended starts anew (gymnasium's AutoresetMode).

    Everything else as in `TokenEnv`, whose row i it is if that was reset with `seed + i`. Reset
    options hold for all rows, or are lists of one for each; `reset_mask` (B,) picks the rows.
    info holds `response`, `score` and `answer` of the rows that have just ended.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "human"], "render_fps": 10}

    def __init__(
        self,
        num_envs: int = 1,
        task: str | None = None,
        model: str | None = None,
        *,
        device: str | None = None,
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        split: str = "train",
        overrides: Sequence[str] = (),
        max_prompt: int | None = None,
        render_mode: str | None = None,
        **task_options: Any,
    ):
        self.rules = load_rules(task, model, split, overrides, max_prompt, task_options)
        self.episodes = Episodes(self.rules, num_envs, device or "cpu")
        self.num_envs = num_envs
        self.numpy = device is None
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.single_action_space = self.rules.action_space
        self.single_observation_space = self.rules.observation_space
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.render_mode = render_mode
        self._random = [seeding.np_random()[0] for _ in range(num_envs)]

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        options = dict(options or {})
        everyone = np.ones(self.num_envs, dtype=bool)
        chosen = torch.as_tensor(options.pop("reset_mask", everyone), device=self.episodes.device)
        seeds = [seed] * self.num_envs if seed is None else seed
        if isinstance(seeds, int):
            seeds = [seeds + i for i in range(self.num_envs)]
        for name, given in {"seed": seeds, **options}.items():
            if isinstance(given, list) and len(given) != self.num_envs:
                raise RlzooError(f"reset: {name} has {len(given)} entries, not {self.num_envs}")
        for i in chosen.nonzero().squeeze(1).tolist():
            if seeds[i] is not None:
                self._random[i] = seeding.np_random(seeds[i])[0]
            self._start(i, {n: x[i] if isinstance(x, list) else x for n, x in options.items()})
        return self._out(self.episodes.observations()), self._infos(chosen)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        episodes = self.episodes
        actions = torch.as_tensor(actions, device=episodes.device)
        over = episodes.ended
        everyone = torch.ones_like(over)
        if self.autoreset_mode == AutoresetMode.NEXT_STEP:
            self._restart(over)
        elif bool(over.any()):
            rows = over.nonzero().squeeze(1).tolist()
            raise ResetNeeded(f"rows {rows} are over; reset them by options['reset_mask']")
        acting = (~over).nonzero().squeeze(1)
        rewards = episodes.act(acting, actions[acting])
        terminated, truncated = episodes.terminated.clone(), episodes.truncated.clone()
        infos: dict[str, Any] = {}
        ended = terminated | truncated
        if self.autoreset_mode == AutoresetMode.SAME_STEP and bool(ended.any()):
            infos["final_obs"] = self._final(episodes.observations(), ended)
            infos["final_info"] = self._infos(ended)
            infos["_final_obs"] = infos["_final_info"] = self._out(ended)
            self._restart(ended)
        infos.update(self._infos(everyone))
        rewards = rewards.double() if self.numpy else rewards
        results = (episodes.observations(), rewards, terminated, truncated)
        return *map(self._out, results), infos

    def columns(self) -> dict[str, Any]:
        """The episodes so far as a batch: what a policy takes."""
        return self.episodes.columns(torch.arange(self.num_envs, device=self.episodes.device))

    def render(self) -> tuple[str, ...] | None:
        """`prompt|response` of each row: returned in mode "ansi", printed in mode "human"."""
        texts = self.episodes.texts()
        if self.render_mode == "human":
            print(*texts, sep="\n")
        return tuple(texts) if self.render_mode == "ansi" else None

    def _start(self, row: int, options: Mapping[str, Any]) -> None:
        self.episodes.start(row, self._random[row], options)

    def _restart(self, over: Tensor) -> None:
        for i in over.nonzero().squeeze(1).tolist():
            self._start(i, {})

    def _infos(self, rows: Tensor) -> dict[str, Any]:
        """gymnasium's form: under `name` a value for each row, under `_name` who has one."""
        episodes = self.episodes
        columns: dict[str, tuple[Any, Tensor]] = {
            "prompt": ([e.prompt for e in episodes.examples], rows),
            "attention_mask": (episodes.attention_mask() * rows[:, None], rows),
        }
        ended = rows & episodes.ended
        if bool(ended.any()):
            index = ended.nonzero().squeeze(1)
            responses: list[str | None] = [None] * self.num_envs
            texts = episodes.columns(index)["responses"]
            for i, text in zip(index.tolist(), texts, strict=True):
                responses[i] = text
            columns["response"] = (responses, ended)
            columns["score"] = (torch.where(ended, episodes.sequence_scores.double(), 0), ended)
            columns["answer"] = ([e.answer for e in episodes.examples], ended)
        infos: dict[str, Any] = {}
        for name, (values, mask) in columns.items():
            if isinstance(values, list):
                values = [x if m else None for x, m in zip(values, mask.tolist(), strict=True)]
                infos[name] = np.array([*values, None], dtype=object)[:-1] if self.numpy else values
            else:
                infos[name] = self._out(values)
            infos[f"_{name}"] = self._out(mask)
        return infos

    def _final(self, observations: Tensor, ended: Tensor) -> Any:
        if not self.numpy:
            return observations
        final = np.full(self.num_envs, None, dtype=object)
        for i in ended.nonzero().squeeze(1).tolist():
            final[i] = observations[i].numpy()
        return final

    def _out(self, x: Tensor) -> Any:
        return x.numpy().copy() if self.numpy else x.clone()


# ---------------------------------------------------------------- KL in the reward


class KLRewardWrapper(gymnasium.Wrapper):
    """reward - coef * KL penalty of each token, as a recipe with kl.place=reward pays it.

    policy, reference: the penalty compares their softmax(logits / policy.temperature).
    penalty: a KL penalty or its name; None, and None for coef and spread ("token" or "last"): the
        environment's recipe decides.

    It costs a forward pass over the whole row of each model at every step, without a KV cache.
    info gains log_prob, ref_log_prob and kl (the penalty in nats, before the coefficient).
    """

    def __init__(
        self,
        env: gymnasium.Env,
        policy: Policy,
        reference: Policy,
        penalty: Component | Bound | str | None = None,
        coef: float | None = None,
        spread: str | None = None,
    ):
        super().__init__(env)
        recipe = env.unwrapped.rules.plan.recipe  # type: ignore[attr-defined]
        kl = recipe.config.kl
        self.policy, self.reference = policy, reference
        self.coef = kl.coef if coef is None else coef
        self.spread = kl.spread if spread is None else spread
        if self.spread not in ("token", "last"):
            raise RlzooError(f"spread must be 'token' or 'last'. Got {self.spread!r}")
        if penalty is None:
            penalty = Bound(load_zoo().kl_penalties[kl.name], recipe.options("kl"))
        elif isinstance(penalty, str):
            penalty = load_zoo().kl_penalties[penalty]
        self.penalty = penalty

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        columns = self._columns()
        penalty = self.penalty(columns)  # (1, t + 1)
        kl = penalty[0, -1].item()
        info["log_prob"] = columns["log_probs"][0, -1].item()
        info["ref_log_prob"] = columns["ref_log_probs"][0, -1].item()
        info["kl"] = kl
        if self.spread == "last":
            kl = penalty.sum().item() if terminated or truncated else 0.0
        return observation, float(reward) - self.coef * kl, terminated, truncated, info

    @torch.no_grad()
    def _columns(self) -> dict[str, Any]:
        """The row's columns, with those that a KL penalty may ask for."""
        columns = self.env.unwrapped.columns()  # type: ignore[attr-defined]
        device = self.policy.device
        columns = {n: x.to(device) if isinstance(x, Tensor) else x for n, x in columns.items()}
        columns["log_probs"] = self.policy.log_probs(columns)
        if "full_kl" in self.penalty.needs:
            kl, theirs = self.policy.full_kl(columns, self.reference)
            columns |= {"full_kl": kl, "ref_log_probs": theirs}
        else:
            columns["ref_log_probs"] = self.reference.log_probs(columns)
        return columns
