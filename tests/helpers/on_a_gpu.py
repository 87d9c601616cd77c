"""Training steps on the CPU and on the pretend GPU, and how often the host waits in each phase."""

from contextlib import contextmanager
from unittest import mock

from helpers.pretend_gpu import pretend_gpu
from rlzoo.lm.build import build_models
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.rollout import sample
from rlzoo.step import trainer

UNTOLD = ("timing_s/", "perf/")

SMALL = (
    "rollout.prompts=4", "rollout.samples=4", "rollout.max_new_tokens=5", "train.minibatches=2",
    "model.autocast=none", "rollout.cache=static",
)  # fmt: skip
TALK = ("task=hi_lo", "model=turns", "rollout.max_new_tokens=24")


def trainer_of(zoo, recipe, *words):
    """The recipe opened: a few rows of a few tokens."""
    return trainer.Trainer(build_models(make_plan(compose([f"recipe={recipe}", *words], zoo), zoo)))


def told(metrics):
    return {name: x for name, x in metrics.items() if not name.startswith(UNTOLD)}


@contextmanager
def phases():
    """The pretend GPU, told which phase of a step runs: `gen` wherever anything is sampled or
    scored, `columns`, `adv`, `update`, and `metrics` for all else."""
    with pretend_gpu() as gpu:

        @contextmanager
        def named(name):
            before, gpu.phase = gpu.phase, name
            try:
                yield
            finally:
                gpu.phase = before

        def timed(seconds, name, clock):
            seconds[name] = 0.0
            return named(name)

        def within(name, function):
            def called(*given, **options):
                with named(name):
                    return function(*given, **options)

            return called

        patches = [
            mock.patch.object(trainer, "timed", timed),
            mock.patch.object(sample, "respond", within("gen", sample.respond)),
            mock.patch.object(sample.Score, "__call__", within("gen", sample.Score.__call__)),
        ]
        gpu.phase = "metrics"
        for patch in patches:
            patch.start()
        try:
            yield gpu
        finally:
            for patch in patches:
                patch.stop()


class Counted:
    """What waited in one step: `of[phase]`, the optimizer steps, and tokens of the longest row."""

    def __init__(self, gpu, steps, tokens):
        self.of = {p: gpu.waited(p) for p in ("gen", "columns", "adv", "update", "metrics")}
        self.decoding = sum(
            n for (_, _, at), n in gpu.syncs.items() if at.startswith("accel/decode.py")
        )
        self.steps, self.tokens, self.lines = steps, tokens, gpu.by_line()

    def over(self):
        """The budgets that are not kept, with the lines that waited."""
        most = {"columns": 4, "adv": 2, "update": self.steps, "metrics": 1}
        found = [f"{p}: {self.of[p]} of {n}" for p, n in most.items() if self.of[p] > n]
        return "\n".join([*found, self.lines]) if found else ""


def on_both(zoo, recipe, *words, steps=1):
    """Metrics of `steps` steps on the CPU and on the pretend GPU, and what waited in the last."""
    cpu = trainer_of(zoo, recipe, *words, "device=cpu")
    want = [told(cpu.step()[1]) for _ in range(steps)]
    with phases() as gpu:
        device = trainer_of(zoo, recipe, *words, "device=cuda")
        got, taken = [], []
        for optimizer in device.optimizers.values():
            optimizer.register_step_post_hook(lambda *given: taken.append(1))
        for _ in range(steps):
            gpu.clear()
            taken.clear()
            batch, metrics = device.step()
            got.append(told(metrics))
        counted = Counted(gpu, len(taken), batch.steps)
    return want, got, counted
