"""Decoding on a pretend GPU: captured graphs give the CPU's tokens, the host waits once in 16."""

import pytest
import torch

from helpers.architectures import TOKENIZER, ragged, save_model
from helpers.pretend_gpu import pretend_gpu
from helpers.worlds import rolled
from invariants.architecture_table.configs import config_of
from rlzoo.errors import ModelError
from rlzoo.lm.decode import Rows
from rlzoo.lm.policy import Policy
from rlzoo.mdp.batch import left_pad


def policy_on(device, name="gemma3"):  # of full and of sliding attention
    from transformers import AutoModelForCausalLM

    with torch.random.fork_rng():
        torch.manual_seed(0)
        policy = Policy(AutoModelForCausalLM.from_config(config_of(name)).eval(), TOKENIZER)
    policy.model.to(device)
    policy.static, policy.eos_ids = True, [1, 2]
    return policy


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


def test_what_waits_in_a_step_is_told_and_not_captured(monkeypatch):
    plain = Rows.say
    monkeypatch.setattr(Rows, "say", lambda self, logits: (plain(self, logits), self.now.item()))
    with pretend_gpu(), pytest.raises(ModelError, match=r"make the host wait \(\w+\)"):
        sampled(policy_on("cuda"), 8)


@pytest.mark.landing
def test_a_run_on_a_gpu_samples_by_a_bfloat16_copy(make, tmp_path):
    folder = save_model(tmp_path / "model", "qwen2")
    with pretend_gpu():
        world = make(folder, "device=cuda")
        assert world.policy.static
        assert world.policy.sampled_by.model.dtype == torch.bfloat16
        assert world.contract["static cache"].startswith("as with one that grows")
        batch = rolled(world)
        assert batch["sampler_log_probs"].isfinite().all().item()
        off = (batch["sampler_log_probs"] - batch["old_log_probs"]).abs().max().item()
        assert 0 < off < 0.5
        world = make(folder, "device=cuda", "rollout.cache=dynamic", "model.autocast=none")
        assert not world.policy.static
        assert world.policy.sampled_by is None
