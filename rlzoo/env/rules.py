"""The rules of an episode of the token MDP: those of a recipe's task."""

import json
from collections.abc import Sequence

from rlzoo.lm.loading import eos_ids, load_config, load_tokenizer, resolve_path
from rlzoo.lm.prompts import PromptFormat, drawn
from rlzoo.mdp.turns import Turns
from rlzoo.plugin.registry import load_zoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan


class Rules:
    """A task and rewards, as a recipe with these keys has them, with the tokenizer and config of a
    model's folder. No weights. Names left out are the defaults'."""

    def __init__(
        self,
        task: str | None = None,
        model: str | None = None,
        *,
        split: str = "train",
        overrides: Sequence[str] = (),
        max_prompt: int | None = None,
        **task_options: object,
    ):
        chosen = {"task": task, "model": model}
        words = [f"{key}={name}" for key, name in chosen.items() if name is not None]
        words += [f"task.{key}={json.dumps(value)}" for key, value in task_options.items()]
        zoo = load_zoo()
        self.plan = make_plan(compose([*words, *overrides], zoo, need_recipe=False), zoo)
        m = self.plan.recipe.config.model
        rollout = self.plan.recipe.config.rollout
        folder = resolve_path(m.path)
        self.tokenizer = load_tokenizer(
            folder,
            trust_remote_code=m.trust_remote_code,
            chat_args=m.chat_args,
            ends=not rollout.ignore_eos,
        )
        config = load_config(folder, trust_remote_code=m.trust_remote_code)
        self.form = PromptFormat(self.tokenizer, m.chat, m.system)
        of = (self.plan.task, self.plan.task_name)
        ids = [] if rollout.ignore_eos else eos_ids(config, self.tokenizer)
        self.eos_ids = self.form.ends(*of, ids) if ids else []
        self.pad_id = int(self.tokenizer.pad_token_id)
        self.vocabulary: int = config.get_text_config().vocab_size
        self.max_new_tokens: int = rollout.max_new_tokens
        self.min_new_tokens: int = rollout.min_new_tokens
        if max_prompt is None:
            max_prompt = 2 * max(len(self.form.encode(prompt)) for prompt in drawn(*of, "train"))
        self.max_prompt = max_prompt
        self.split = split
        # How conversations go, where the task holds any.
        talks = self.plan.conversation
        self.turns = Turns(self.plan, self.tokenizer, self.eos_ids) if talks else None

    def __deepcopy__(self, memo: dict[int, object]) -> "Rules":
        return self  # nothing in it changes, so that copies of an environment (search) are cheap
