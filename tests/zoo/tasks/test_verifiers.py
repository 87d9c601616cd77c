"""Single-turn tasksets of verifiers: their prompts, their rewards, and what is refused."""

import asyncio

import pytest
import torch

import rlzoo
from rlzoo import RlzooError
from rlzoo_zoo.tasks.verifiers import Verifiers

vf = pytest.importorskip("verifiers.v1")

SUMS = """
import verifiers.v1 as vf

class Data(vf.TaskData):
    answer: str

class Config(vf.TasksetConfig):
    top: int = 10
    system: str | None = None

class Sum(vf.Task[Data, vf.State, vf.TaskConfig]):
    @vf.reward(weight=2.0)
    async def right(self, trace) -> float:
        assert trace.is_completed
        return float(trace.last_reply == self.data.answer)

    @vf.reward
    async def short(self, task, trace) -> float:
        return 0.5 * (10 // len(trace.last_reply) > 4)  # fails on ""

    MORE

class Sums(vf.Taskset[Sum, Config]):
    def load(self):
        for a in range(self.config.top):
            prompt = f"{a}+1="
            yield Sum(Data(prompt=prompt, answer=str(a + 1), system_prompt=self.config.system))
"""


@pytest.fixture
def file(tmp_path):
    def write(more="", name="sums", text=SUMS):
        path = tmp_path / f"{name}.py"
        path.write_text(text.replace("MORE", more))
        return str(path)

    return write


def test_prompts_and_weighted_rewards(file):
    task = Verifiers(taskset=file())
    train, test = (task.draw(s, 60, torch.Generator().manual_seed(0)) for s in ("train", "test"))
    assert {e.index for e in train} == {1, 2, 3, 4, 6, 7, 8, 9}
    assert {e.prompt for e in test} == {"0+1=", "5+1="}
    index = torch.tensor([3, 3, 3, 3, 4])
    said = ["4", "5", "400", "", "5"]
    done = torch.tensor([True, True, True, True, False])
    assert task.score(said, index, done).tolist() == [2.5, 0.5, 0, 0, 0]
    assert task.is_correct(said, index).tolist() == [True, False, False, False, True]


def test_settings_a_system_prompt_and_a_running_event_loop(file):
    task = Verifiers(taskset=file(), config=["top=3", "system=Add."])
    assert len(task.tasks) == 3
    assert task.example(1).prompt == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": "1+1="},
    ]

    async def within():
        return task.score(["2"], torch.tensor([1]), torch.tensor([True])).tolist()

    assert asyncio.run(within()) == [2.5]


@pytest.mark.landing
def test_a_task_learns_from_it(file, zoo):
    words = ["model=nano", "task=verifiers", f"task.taskset={file()}", "rollout.max_new_tokens=4"]
    trainer = rlzoo.open_recipe("grpo", [*words, "rollout.prompts=2"], zoo=zoo)
    batch, _ = trainer.step()
    assert batch["prompts"][0] in {f"{a}+1=" for a in range(10)}
    failed = [r for r in rlzoo.check("verifiers", [f"taskset={file()}"]) if r["passed"] is False]
    assert not failed


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ("async def setup(self, trace, runtime): pass", "runtime"),
        ("@vf.reward\n    async def run(self, runtime) -> float: return 1.0", "runtime .run."),
        ("NEEDS_CONTAINER = True", "container"),
        ("@classmethod\n    def toolsets(cls, config): return ['a tool']", "tools"),
    ],
)
def test_what_a_response_alone_cannot_be_judged_by_is_refused(file, more, reason):
    with pytest.raises(RlzooError, match=reason + ".*rlzoo serve"):
        Verifiers(taskset=file(more, name=f"sums_{len(more)}"))


def test_what_does_not_load_has_a_line(file):
    offline = SUMS.replace("for a in", "raise OSError('no route to host')\n        for a in")
    with pytest.raises(RlzooError, match=r"no route to host.*network"):
        Verifiers(taskset=file(name="offline", text=offline))
    with pytest.raises(RlzooError, match="no_such_package"):
        Verifiers(taskset="no_such_package")
    with pytest.raises(RlzooError, match="one subclass of Taskset. Got 2"):
        Verifiers(taskset=file(name="two", text=SUMS + "\nclass Again(Sums): pass\n"))
    with pytest.raises(RlzooError, match="tops"):
        Verifiers(taskset=file(), config=["tops=3"])
