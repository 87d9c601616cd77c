"""Output of other trainers, made up in the form in which each writes it.

tests/benchmarks/import_writers.py calls the trainers' own writers, at the commits in it.
"""

import json
import pickle
import struct
import zipfile
import zlib

REWARDS = [0.1, 0.2, 0.30000000000000004]  # of three steps
LRS = [1e-06, 9.999999e-07, 8e-07]


def lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def trl(folder):
    """trainer_state.json, training_args.bin and the completions of two steps."""
    import pyarrow as pa
    from pyarrow.parquet import write_table

    history = [
        {"step": n, "epoch": 0.1 * n, "reward": r, "reward_std": 0.5, "rewards/right/mean": r,
         "kl": 0.25, "learning_rate": lr, "odd": 7.0}
        for n, (r, lr) in enumerate(zip(REWARDS, LRS, strict=True), 1)
    ]  # fmt: skip
    history.insert(2, {"step": 2, "eval_reward": 0.75, "eval_rewards/right/mean": 0.75})
    history.append({"step": 3, "train_runtime": 3.0, "train_loss": 0.0})
    state = {"global_step": 3, "max_steps": 4, "log_history": history}
    for name, kept in (("checkpoint-2", history[:3]), ("checkpoint-3", history)):
        place = folder / name
        place.mkdir(parents=True)
        (place / "trainer_state.json").write_text(json.dumps(state | {"log_history": kept}))
        arguments(place / "training_args.bin", seed=3, learning_rate=1e-6, beta=0.04,
                  num_generations=2, generation_batch_size=4, max_steps=4)  # fmt: skip
    (folder / "completions").mkdir()
    for step in (1, 2):
        table = pa.table({
            "step": [step] * 4, "prompt": ["1+1=", "1+1=", "2+3=", "2+3="],
            "completion": ["2", "3", "5", "5"], "right": [1.0, 0.0, 1.0, 1.0],
            "advantage": [0.5, -0.5, 0.0, 0.0],
        })  # fmt: skip
        write_table(table, folder / "completions" / f"completions_0000{step}.parquet")
    return folder


class Settings:
    pass


def arguments(path, **settings):
    """As torch.save writes an object: a pickle in a zip archive."""
    made = Settings()
    made.__dict__ |= settings
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{path.stem}/data.pkl", pickle.dumps(made, 2))


def verl_jsonl(folder):
    """The file logger, and the rollouts that `trainer.rollout_data_dir` gets."""
    lines(folder / "metrics.jsonl", [
        {"step": n, "data": {"critic/score/mean": r, "actor/lr": lr, "training/epoch": 0,
                             "perf/mfu": 0.5}}
        for n, (r, lr) in enumerate(zip(REWARDS, LRS, strict=True), 1)
    ] + [{"step": 3, "data": {"val-core/gsm8k/reward/mean@1": 0.625}}])  # fmt: skip
    for step in (1, 2, 3):
        lines(folder / "rollouts" / f"{step}.jsonl", [
            {"input": "1+1=", "output": text, "gts": "2", "score": float(text == "2"), "step": step}
            for text in ("2", "3")
        ])  # fmt: skip
    row = {"input": "9+9=", "output": "18", "gts": "18", "score": 1.0, "step": 3, "reward": 1.0}
    lines(folder / "validation" / "3.jsonl", [row])
    return folder


def verl_console(folder):
    folder.mkdir(parents=True)
    text = ["(TaskRunner pid=1) starting", "step:0 - val-core/gsm8k/reward/mean@1:0.5"]
    text += [
        f"(TaskRunner pid=1) step:{n} - critic/score/mean:{r} - actor/lr:np.float64({lr})"
        for n, (r, lr) in enumerate(zip(REWARDS, LRS, strict=True), 1)
    ]
    (folder / "train.log").write_text("\n".join(text) + "\n")
    return folder


def prime_rl(folder):
    """metrics.jsonl of the trainer and of the orchestrator, the trainer's token export and the
    orchestrator's traces, from which only train/effective has training samples."""
    lines(folder / "trainer" / "metrics.jsonl", [
        {"step": n, "time": 1e9 + n, "optim/lr": lr, "optim/grad_norm": 1.5}
        for n, lr in enumerate(LRS, 1)
    ])  # fmt: skip
    lines(folder / "orchestrator" / "metrics.jsonl", [
        {"step": 0, "time": 1e9, "eval/sums/effective/agent/avg@4": 0.5}
    ] + [
        {"step": n, "time": 1e9, "train/agg/effective/agent/reward/mean": r,
         "train/agg/all/agent/reward/mean": r / 2}
        for n, r in enumerate(REWARDS, 1)
    ])  # fmt: skip
    for n in (1, 2, 3):
        lines(folder / "trainer" / "token_exports" / f"step_{n}" / "rank_0.jsonl", [
            {"step": n, "token_ids": [1, 2, i], "loss_mask": [False, True, True],
             "advantages": [0.0, a, a], "inference_logprobs": [0.0, -1.25, -2.25],
             "trainer_logprobs": [0.0, None if n == 2 else -1.0, -2.0], "entropy": [0.5] * 3}
            for i, a in ((3, 0.5), (4, -0.5))
        ])  # fmt: skip
        for part in ("eval/effective", "train/all", "train/effective"):
            place = folder / "orchestrator" / "rollouts" / f"step_{n}" / part
            lines(place / "traces.jsonl", [episode("2", 1.0, 0.5), episode("3", 0.0, -0.5)])
    return folder


def episode(text, score, advantage):
    """What verifiers' Episode.to_record gives, the parts that are read."""
    nodes = [
        {"message": {"role": "user", "content": "1+1="}, "sampled": False, "token_ids": [1],
         "mask": [False]},
        {"parent": 0, "message": {"role": "assistant", "content": text}, "sampled": True,
         "token_ids": [2, 3 if text == "2" else 4], "mask": [True, True],
         "logprobs": [-1.25, -2.25], "advantages": [advantage, advantage]},
    ]  # fmt: skip
    rewards = {"right": {"score": score, "weight": 1.0}, "form": {"score": 0.5, "weight": 0.25}}
    judge = {"agent": {"name": "judge", "trainable": False}, "rewards": {}, "nodes": []}
    return {"id": "a", "group": {"id": "g"}, "task": {"type": "Sum", "data": {}}, "traces": [
        {"agent": {"name": "agent"}, "rewards": rewards, "nodes": nodes}, judge]}  # fmt: skip


def skyrl(folder):
    """Ray puts the worker before each line, and loguru puts colours around each message."""
    folder.mkdir(parents=True)
    ray, other = "\x1b[36m(entry pid=7)\x1b[0m ", "\x1b[36m(engine pid=8)\x1b[0m warming up"
    head = f"{ray}\x1b[32m12:00\x1b[0m | \x1b[1m\x1b[32mINFO\x1b[0m - \x1b[1m\x1b[32m"
    text = [f"{head}starting\x1b[0m", f"{head}Step 0: "]
    text += [f"{ray}{{'eval/all/avg_score': '0.2500',", f"{ray} 'timing/eval': '1.5000'}}\x1b[0m"]
    for n, r in enumerate(REWARDS, 1):
        text += [f"{head}Step {n}: ", f"{ray}{{'policy/policy_lr': '0.0010',", other]
        text += [f"{ray} 'reward/avg_raw_reward': '{r:.4f}'}}\x1b[0m"]
    (folder / "run.log").write_text("\n".join(text) + "\n")
    return folder


def slime(folder):
    import torch

    folder.mkdir(parents=True)
    text = ["data.py:1 - eval 0: {'eval/aime': 0.125, 'eval/aime-pass@1': np.float64(0.25)}"]
    for n, (r, lr) in enumerate(zip(REWARDS, LRS, strict=True)):
        text += [f"data.py:1 - rollout {n}: {{'rollout/raw_reward': {r}, 'rollout/values': nan}}"]
        text += [f"model.py:1 - step {n}: {{'train/lr-pg_0': {lr}, 'train/step': {n}}}"]
        rows = [{"prompt": [{"role": "user", "content": "1+1="}], "response": t, "label": "2",
                 "reward": float(t == "2"), "status": "completed", "group_index": 7 + n,
                 "tokens": [1, 2, 30, 3 + i], "response_length": 3, "loss_mask": [1, 0, 1],
                 "rollout_log_probs": [-0.5, 0.0, -1.5]}
                for i, t in enumerate(("2", "3"))]  # fmt: skip
        (folder / "rollout_data").mkdir(exist_ok=True)
        for name in (f"{n}.pt", f"eval_{n}.pt"):
            torch.save({"rollout_id": n, "samples": rows}, folder / "rollout_data" / name)
    (folder / "slime.log").write_text("\n".join(text) + "\n")
    return folder


def tensorboard(folder):
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    writer = EventFileWriter(str(folder))
    for n, r in enumerate(REWARDS, 1):
        value = Summary.Value(tag="critic/score/mean", simple_value=r)
        writer.add_event(Event(step=n, summary=Summary(value=[value])))
    writer.close()
    return folder


def table(folder):
    folder.mkdir(parents=True)
    text = ["Step,run-a - critic/score/mean,run-a - critic/score/mean__MIN,run-a - note"]
    text += [f"{n},{r},{r},text" for n, r in enumerate(REWARDS, 1)]
    (folder / "export.csv").write_text("\n".join(text) + "\n")
    return folder


def wandb(folder):
    rows = [{"train/reward": r, "train/learning_rate": lr, "train/global_step": n, "_step": n}
            for n, (r, lr) in enumerate(zip(REWARDS, LRS, strict=True), 1)]  # fmt: skip
    rows.append({"eval/reward": 0.75, "train/global_step": 3, "_step": 4})
    wandb_file(folder / "run-abc.wandb", rows, learning_rate=1e-6, num_generations=2, seed=3)
    return folder


def wandb_file(path, rows, **config):
    """A .wandb file, with the messages that wandb 0.19 writes: a run's config and its history."""
    records = [_field(17, b"".join(_field(4, _field(1, _item(k, v))) for k, v in config.items()))]
    records += [_field(2, b"".join(_field(1, _item(k, v)) for k, v in row.items())) for row in rows]
    records.insert(-1, _field(99, b"x" * 40_000))  # over two blocks of the file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(_blocks(records))


def wandb_values(**values):
    """A .wandb file of one row, whose values are given in JSON."""
    items = (_field(2, key.encode()) + _field(16, value) for key, value in values.items())
    return _blocks([_field(2, b"".join(_field(1, item) for item in items))])


def _varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def _field(number, data):
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _item(key, value):
    return _field(2, key.encode()) + _field(16, json.dumps(value).encode())


def _blocks(records):
    """LevelDB's log format: records in blocks of 32 KiB, behind a header of 7 bytes."""
    out = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
    for data in records:
        first = True
        while first or data:
            room = 2**15 - len(out) % 2**15
            if room < 7:
                out, room = out + bytes(room), 2**15
            part, data = data[: room - 7], data[room - 7 :]
            kind = (1 if first else 4) if not data else (2 if first else 3)
            crc = zlib.crc32(part, zlib.crc32(bytes([kind])))
            out, first = out + struct.pack("<IHB", crc, len(part), kind) + part, False
    return out


SOURCES = {f.__name__: f for f in (trl, verl_jsonl, verl_console, prime_rl, skyrl, slime,
                                   tensorboard, table, wandb)}  # fmt: skip
