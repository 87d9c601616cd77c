"""TRL's GRPOTrainer for docs/examples/invariance.py: its own loop around a batch that is given.

python docs/examples/invariance.py tests/reference/invariance/in_trl.py:grpo loss_type=dapo
"""

import os
import tempfile
from importlib.metadata import version

os.environ |= {"HF_HUB_OFFLINE": "1", "TRL_EXPERIMENTAL_SILENCE": "1"}

import torch
import transformers
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

torch.set_num_threads(1)
SMALL = {"vocab_size": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2, **SMALL),
    "gpt2": lambda: transformers.GPT2Config(
        n_embd=16, n_layer=2, n_head=2, n_positions=64, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        **SMALL),
}  # fmt: skip


class Given(GRPOTrainer):
    """Its rollout is `given`; splitting, losses and accumulation are GRPOTrainer's."""

    def _generate_and_score_completions(self, inputs):
        share = len(self.given["advantages"]) // self.accelerator.num_processes
        first = share * self.accelerator.process_index
        mine = {k: x[first : first + share] for k, x in self.given.items()}
        mask = mine["response_mask"]
        return {
            "prompt_ids": mine["prompt_ids"],
            "prompt_mask": mine["prompt_mask"],
            "completion_ids": mine["response_ids"],
            "completion_mask": mask,
            "advantages": mine["advantages"],
            **self.moved(mine),
            "num_items_in_batch": self.accelerator.gather(mask.sum()).sum(),
        }

    def moved(self, mine):
        """Log-probs of an older policy, if ratios are not 1."""
        if not self.by:
            return {}
        ids = torch.cat([mine["prompt_ids"], mine["response_ids"]], 1)
        mask = torch.cat([mine["prompt_mask"], mine["response_mask"]], 1)
        model, width = getattr(self.model, "module", self.model), mine["response_ids"].shape[1]
        with torch.no_grad():
            logits = model(ids, attention_mask=mask).logits[:, -width - 1 : -1]
        now = logits.log_softmax(-1).gather(2, mine["response_ids"][..., None])[..., 0]
        return {"old_per_token_logps": now + self.by * torch.sin(5.0 * mine["response_ids"])}


class Keep(TrainerCallback):
    """The gradients that the optimizer is about to use."""

    def on_pre_optimizer_step(self, args, state, control, model=None, **_):
        model = getattr(model, "module", model)
        self.kept = {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def grpo(architecture="llama", moved=0.0, **settings):
    """moved: the largest log-ratio; beyond 0.2, tokens are clipped."""

    def gradient(batch, rows):
        count = int(os.environ.get("WORLD_SIZE", 1))
        share, rest = divmod(len(batch["advantages"]), count)
        rows = rows or share
        if rest or share % rows:
            raise NotImplementedError  # batches and passes of TRL have equal numbers of rows
        tokenizer = Tokenizer(models.WordLevel({f"t{i}": i for i in range(16)}, unk_token="t0"))
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        transformers.set_seed(0)
        model = AutoModelForCausalLM.from_config(CONFIGS[architecture](), dtype=torch.float64)
        with tempfile.TemporaryDirectory() as folder:
            trainer = Given(
                model=model,
                reward_funcs=lambda completions, **_: [0.0] * len(completions),
                args=GRPOConfig(**{
                    "output_dir": folder, "per_device_train_batch_size": rows,
                    "gradient_accumulation_steps": share // rows, "num_generations": 2,
                    "max_completion_length": 16, "max_steps": 1, "max_grad_norm": 0.0,
                    "use_cpu": True, "bf16": False, "report_to": [], "save_strategy": "no",
                    "disable_tqdm": True, "logging_strategy": "no", "log_level": "error",
                    "gradient_checkpointing": False, **settings}),
                train_dataset=Dataset.from_list([{"prompt": "t3"}] * 64),
                processing_class=PreTrainedTokenizerFast(
                    tokenizer_object=tokenizer, pad_token="t0", eos_token="t2", unk_token="t0"),
                callbacks=[keep := Keep()],
            )  # fmt: skip
            trainer.given, trainer.by = batch, moved
            trainer.train()
        return keep.kept

    gradient.label = f"TRL {version('trl')}"
    return gradient
