"""Single-turn tasksets of verifiers 0.4, scored by their own reward functions."""

import asyncio
import inspect
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stdout
from itertools import islice
from typing import Annotated, Any

import torch

from rlzoo import Example, Range, RlzooError, component
from rlzoo_zoo.packages import needs
from rlzoo_zoo.tasks.reasoning_gym import FAILURES, HELD_OUT, setting

INSTEAD = "use verifiers' own loop with `rlzoo serve` instead"


@component("task")
class Verifiers:
    """The tasks of a taskset of verifiers 0.4: prompts, and reward functions of a trace with the
    prompt and the response, which is the whole episode.

    taskset: an installed package, or the path of a Python file, with one `Taskset`. size: maximum
    number of tasks, taken from the start, one in five held out. config: settings of the taskset, a
    list of `name=value`. success: the score from which a response is correct. Score (B,): the sum
    of the weighted rewards if the row terminated, otherwise 0; a reward function that fails scores
    0. A task with a system prompt, or with messages, has messages as its prompt. Reward functions
    run in the process of the run with its permissions. Tasks that need a runtime, tools, a judge or
    several turns are rejected.
    Source: Brown 2025, github.com/PrimeIntellect-ai/verifiers.
    """

    def __init__(
        self,
        *,
        taskset: str = "",
        size: Annotated[int, Range(2)] = 1000,
        config: list[str] = [],  # noqa: B006
        success: float = 1.0,
    ):
        needs("verifiers")()
        if not taskset:
            raise ValueError("taskset: give a package or a file with a Taskset of verifiers")
        import verifiers.v1 as vf

        self.vf, self.success = vf, success
        try:
            from verifiers.v1.utils.generic import concrete_type

            found = taskset_class(taskset, vf)
            kind = concrete_type(found, vf.TasksetConfig) or vf.TasksetConfig
            made = found(kind(**dict(map(setting, config))))
            self.tasks = list(islice(made, size))
        except (*FAILURES, ImportError, OSError, RuntimeError) as error:
            fault = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise RlzooError(
                f"taskset {taskset!r} cannot be loaded ({fault}). If it downloads its data, load "
                "it once on a machine with network access"
            ) from None
        if len(self.tasks) < 2:
            raise ValueError(f"taskset {taskset!r} has fewer than 2 tasks")
        for reason in filter(None, (obstacle(made, task, vf) for task in self.tasks)):
            raise RlzooError(f"taskset {taskset!r} {reason}; {INSTEAD}")

    def draw(self, split, n, generator):
        every = range(len(self.tasks))
        numbers = [i for i in every if (i % HELD_OUT == 0) == (split == "test")]
        picks = torch.randint(len(numbers), (n,), generator=generator).tolist()
        return [self.example(numbers[i]) for i in picks]

    def example(self, number):
        data = self.tasks[number].data
        if isinstance(data.prompt, str) and data.system_prompt is None:
            return Example(data.prompt, str(number), number)
        messages: Any = [message(m.role, m.content) for m in self.messages(data)]
        return Example(messages, str(number), number)

    def messages(self, data):
        """The prompt as verifiers' messages."""
        system = [] if data.system_prompt is None else [data.system_prompt]
        given = data.prompt
        opening = [self.vf.UserMessage(content=given)] if isinstance(given, str) else list(given)
        return [*(self.vf.SystemMessage(content=text) for text in system), *opening]

    def score(self, responses, prompt_index, terminated):
        return torch.where(terminated, self.grade(responses, prompt_index).to(terminated.device), 0)

    def is_correct(self, responses, prompt_index):
        return self.grade(responses, prompt_index) >= self.success

    def grade(self, responses, prompt_index):
        """The rewards of responses, (B,)."""
        pairs = zip(responses, prompt_index.tolist(), strict=True)
        with ThreadPoolExecutor(1) as apart:  # a notebook has an event loop of its own
            return torch.tensor([apart.submit(self.judge, *pair).result() for pair in pairs])

    def judge(self, text, number):
        task = self.tasks[number]
        trace = self.trace(task, text)
        try:
            with redirect_stdout(sys.stderr):
                asyncio.run(task.score(trace))
            reward = float(trace.reward)
        except (*FAILURES, self.vf.TaskError):
            return 0.0
        return reward if abs(reward) < float("inf") else 0.0

    def trace(self, task, text):
        """A finished trace: the messages of the prompt, and the response as the model's."""
        from verifiers.v1.graph import MessageNode
        from verifiers.v1.state import state_cls
        from verifiers.v1.trace import AgentInfo, Trace, TraceTask

        said = [*self.messages(task.data), self.vf.AssistantMessage(content=text)]
        last = len(said) - 1
        nodes = [
            MessageNode(parent=i - 1 if i else None, message=m, sampled=i == last)
            for i, m in enumerate(said)
        ]
        kind = type(task).__name__
        return Trace(
            task=TraceTask(type=kind, data=task.data, key=task.key, hash=task.hash),
            agent=AgentInfo(config=self.vf.AgentConfig()),
            state=state_cls(type(task))(),
            nodes=nodes,
            is_completed=True,
            ok=True,
        )


def taskset_class(name, vf):
    """The one Taskset of a package, or of a file."""
    from verifiers.v1.utils import loaders

    if not name.endswith(".py"):
        return loaders.taskset_class(name)
    module = loaders.file_module(name)
    kinds = [x for x in vars(module).values() if isinstance(x, type) and issubclass(x, vf.Taskset)]
    own = [kind for kind in kinds if kind.__module__ == module.__name__]
    if len(own) != 1:
        raise ValueError(f"it must have one subclass of Taskset. Got {len(own)}")
    return own[0]


def obstacle(made, task, vf):
    """Why a response and no more cannot be judged as this task's episode; None if it can."""
    kind = type(task)
    own = [n for n in ("setup", "finalize") if getattr(kind, n) is not getattr(vf.Task, n)]
    needs = [fn.__name__ for name in ("reward", "metric") for fn in task.hooks(name) if runs(fn)]
    if task.data.prompt is None:
        return "has tasks without a prompt, in which the user begins"
    if kind.NEEDS_CONTAINER or task.data.image or own or needs:
        return f"needs a runtime ({', '.join(own + needs) or 'a container'})"
    if kind.toolsets(task.config) or type(made).toolsets(made.config):
        return "has tools and therefore several turns"
    if task.config.judges:
        return "has a judge, which requires a model over the network"
    return None


def runs(function):
    """Whether a reward function needs a runtime."""
    parameter = inspect.signature(function).parameters.get("runtime")
    return parameter is not None and parameter.default is parameter.empty


def message(role, content):
    text = content if isinstance(content, str) else "".join(p.text for p in content)
    return {"role": role, "content": text}
