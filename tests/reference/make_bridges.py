"""What docs/agreement.md says of the bridges: `python tests/reference/make_bridges.py [HOST ...]`.

Makes an environment with the newest verl, SkyRL and TRL that can be installed on a CPU (once;
--env: where) and checkouts of slime, prime-rl and rLLM. Runs bridges/in_HOST.py for each host,
and keeps what they found in bridges.json. About 5 minutes and 1.5 GB; none is a dependency.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import environment

HERE = Path(__file__).resolve().parent
ROOT = environment.ROOT
HOSTS = ("verl", "skyrl", "slime", "trl", "prime-rl", "rllm")
CHECKOUTS = {  # those that are on no index: repository, commit
    "slime": ("https://github.com/THUDM/slime", "624b824a898ab0ec1fcb4d373004c7f3852bf515"),
    "prime-rl": ("https://github.com/PrimeIntellect-ai/prime-rl", "559b44772"),
    "rllm": ("https://github.com/rllm-org/rllm", "9beb6e0f"),
}
# What the call paths import. verl and SkyRL themselves come without theirs: they ask for CUDA, for
# transformers of another version each, and SkyRL for Ray 2.56.
LIBRARIES = (
    "torch", "transformers", "gymnasium", "pluggy", "hydra-core", "rich", "matplotlib",
    "safetensors", "accelerate", "peft", "regex", "tensordict", "codetiming", "datasets", "trl",
    "ray", "torchdata", "orjson", "loguru", "jaxtyping", "cachetools", "uvicorn", "fastapi",
    "pyzmq", "msgspec", "aiohttp", "httpx", "hatchling", "editables", "typing_extensions",
    "beartype",
)  # fmt: skip
BARE = ("verl", "skyrl", "skyrl-gym", "TransferQueue")
OTHERWISE = ("omegaconf", "antlr4", "latex2sympy")  # pins that hydra-core cannot live with
TYPED_DICT = """\
import sys, typing, typing_extensions

if sys.version_info < (3, 12):
    typing.TypedDict = typing_extensions.TypedDict
"""


def make_environment(place: Path) -> Path:
    """Its interpreter."""
    pins = environment.constraints(place, OTHERWISE)
    python = environment.make(place, ["-c", str(pins), *LIBRARIES], ["--no-deps", *BARE])
    # SkyRL is written for Python 3.12, whose TypedDict pydantic takes; also in Ray's processes.
    (environment.site_packages(place) / "sitecustomize.py").write_text(TYPED_DICT)
    return python


def checkout(host: str, place: Path) -> Path:
    address, commit = CHECKOUTS[host]
    if not place.is_dir():
        subprocess.run(["git", "clone", "-q", address, str(place)], check=True)
        subprocess.run(["git", "-C", str(place), "checkout", "-q", commit], check=True)
    return place


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("hosts", nargs="*", default=HOSTS, metavar="HOST", help=", ".join(HOSTS))
    parser.add_argument("--env", type=Path, default=Path("/tmp/rlzoo-bridges"))
    parser.add_argument("--checkouts", type=Path, help="a folder of them; default: --env")
    arguments = parser.parse_args()
    python = make_environment(arguments.env)
    record = HERE / "bridges.json"
    found = json.loads(record.read_text()) if record.exists() else {}
    for host in arguments.hosts:
        extra = {
            "trl": lambda: [str(ROOT / "configs" / "model" / "tiny")],
        }.get(host, list)()
        if host in CHECKOUTS:
            extra = [str(checkout(host, (arguments.checkouts or arguments.env) / host))]
        out = arguments.env / f"{host}.json"
        script = HERE / "bridges" / f"in_{host.replace('-', '_')}.py"
        # Ray's processes are to stay on the loopback address, and the scripts beside each other.
        env = os.environ | {"OMP_NUM_THREADS": "1", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        subprocess.run(
            [str(python), "-W", "ignore", str(script), *extra, str(out)], env=env, check=True
        )
        found[host] = json.loads(out.read_text())
    found["python"] = platform.python_version()
    record.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    print(f"written: {record.relative_to(ROOT)}; now python docs/generate.py", file=sys.stderr)


if __name__ == "__main__":
    main()
