"""Decoding on a pretend GPU: captured graphs give the CPU's tokens, the host waits once in 16."""

import contextlib
import gc
from dataclasses import replace

import pytest
import torch

from helpers.architectures import TOKENIZER, ragged, save_model
from helpers.pretend_gpu import pretend_gpu
from helpers.worlds import rolled
from invariants.architecture_table.configs import config_of
from rlzoo.accel import static
from rlzoo.accel.decode import Decoder, Decoding
from rlzoo.lm.policy import Policy
from rlzoo.mdp.batch import left_pad


def policy_on(device, name="gemma3"):  # of full and of sliding attention
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config_of(name)).eval()
    policy = Policy.of(model.to(device), TOKENIZER, decoder=Decoder(static=True))
    return replace(policy, eos_ids=[1, 2])


def sampled(policy, new):
    prompts = ragged(20, prompt=(1, 12), each=4, seed=5)[0]
    ids, mask = left_pad(prompts, policy.pad_id, torch.device("cpu"))
    u = torch.rand(20, new, generator=torch.manual_seed(1), dtype=torch.float64)
    return policy.generate(*(x.to(policy.device) for x in (ids, mask, u)))


def test_graphs_give_the_cpus_tokens_and_the_host_waits_once_in_sixteen():
    want, waits, launches = sampled(policy_on("cpu"), 40), {}, {}
    with pretend_gpu() as gpu:
        policy = policy_on("cuda")
        for new in (24, 40):
            gpu.clear()
            found = sampled(policy, new)
            waits[new], launches[new] = gpu.waited(), gpu.launches.copy()
        for name, x in want.items():
            assert torch.equal(found[name].cpu(), x), name
    assert (want["old_log_probs"] != 0).sum(1).unique().numel() > 3
    assert waits[40] - waits[24] <= 1
    assert launches[40]["graph"] >= 32
    # 16 tokens more: as many graphs, a look, and what another bucket takes.
    assert sum(launches[40].values()) - sum(launches[24].values()) < 0.5 * launches[40].total()


def test_a_step_that_waits_is_told_and_not_captured(monkeypatch):
    want, plain = sampled(policy_on("cpu"), 40), Decoding.say
    waits = lambda rows, logits: (plain(rows, logits), rows.now.item())  # noqa: E731
    monkeypatch.setattr(Decoding, "say", waits)
    with pretend_gpu() as gpu:
        policy = policy_on("cuda")
        found = sampled(policy, 40)
        assert torch.equal(found["response_ids"].cpu(), want["response_ids"])
        assert gpu.launches["graph"] == 0
    (note,) = policy.decoder.notes
    assert note.startswith(static.FAILED)
    assert "waits for the device" in note


@pytest.mark.landing
def test_a_run_on_a_gpu_samples_by_a_bfloat16_copy(make, tmp_path):
    folder = save_model(tmp_path / "model", "qwen2")
    with pretend_gpu():
        world = make(folder, "device=cuda")
        assert world.policy.decoder.static
        assert world.policy.decoder.copy.model.dtype == torch.bfloat16
        assert world.contract["static cache"].startswith("equal to a growing cache")
        batch = rolled(world)
        assert batch["sampler_log_probs"].isfinite().all().item()
        off = (batch["sampler_log_probs"] - batch["old_log_probs"]).abs().max().item()
        assert 0 < off < 0.5
        world = make(folder, "device=cuda", "rollout.cache=dynamic", "model.autocast=none")
        assert not world.policy.decoder.static
        assert world.policy.decoder.copy is None


class Refused:
    """A capture that fails: within, or at its end, or both."""

    def __init__(self, monkeypatch, within, at_end):
        self.times, plain, capture = 0, Decoding.step, torch.cuda.graph

        def step(rows):
            if torch.cuda.is_current_stream_capturing():
                self.times += 1
                if within is not None and self.times == 1:
                    raise within
            plain(rows)

        @contextlib.contextmanager
        def captured(*given, **how):
            with capture(*given, **how):
                try:
                    yield
                finally:
                    if at_end is not None and self.times == 1:
                        raise at_end

        monkeypatch.setattr(Decoding, "step", step)
        monkeypatch.setattr(torch.cuda, "graph", captured)


INVALID = RuntimeError("CUDA error: operation failed due to a previous error during capture")


@pytest.mark.parametrize(
    ("within", "at_end"), [(RuntimeError("not permitted"), None), (None, INVALID)]
)
def test_a_capture_that_fails_is_noted_once_and_steps_run_without(within, at_end, monkeypatch):
    want = sampled(policy_on("cpu"), 40)
    with pretend_gpu() as gpu:
        policy = policy_on("cuda")
        refused = Refused(monkeypatch, within, at_end)
        found = sampled(policy, 40)
        for name, x in want.items():
            assert torch.equal(found[name].cpu(), x), name
        assert gpu.launches["graph"] > 0  # of other shapes
        assert gpu.graph is None
    assert refused.times > 1
    assert [note.startswith(static.FAILED) for note in policy.decoder.notes] == [True]
    assert policy.decoder.most_rows is None


@pytest.mark.parametrize("at_end", [None, INVALID])
def test_memory_that_runs_out_within_a_capture_halves_the_rows(at_end, monkeypatch):
    want = sampled(policy_on("cpu"), 40)
    with pretend_gpu():
        policy = policy_on("cuda")
        Refused(monkeypatch, torch.OutOfMemoryError("CUDA out of memory"), at_end)
        found = sampled(policy, 40)
        assert torch.equal(found["response_ids"].cpu(), want["response_ids"])
    assert policy.decoder.most_rows == 10
    assert not any(note.startswith(static.FAILED) for note in policy.decoder.notes)


def test_a_capture_is_made_on_its_own_device_and_nothing_is_collected_meanwhile(monkeypatch):
    seen = []
    with pretend_gpu() as gpu:
        capture = torch.cuda.graph

        def captured(graph, **how):
            seen.append((how["stream"].device, how["capture_error_mode"]))
            return capture(graph)

        monkeypatch.setattr(torch.cuda, "graph", captured)
        device = torch.device("cuda", 1)
        static.recorded(lambda: seen.append(gc.isenabled()), device)
        assert gpu.entered == [device]
    assert seen == [(device, "thread_local"), False]
    assert gc.isenabled()
