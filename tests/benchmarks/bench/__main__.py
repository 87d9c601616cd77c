"""`python tests/benchmarks/bench [CASE ...]`: the command line."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from bench import command
from rlzoo.cli.verb import perform
from rlzoo.errors import RlzooError

parser = argparse.ArgumentParser(prog="bench", description=command.__doc__)
command.add_arguments(parser)
parser.add_argument("--json", action="store_true", help="print one JSON document")
try:
    sys.exit(perform(command, parser.parse_args()))
except RlzooError as error:
    sys.exit(f"bench: {error}")
