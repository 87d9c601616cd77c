"""JavaScript run outside of a page: by node, or by a headless chromium where there is no node."""

import json
import shutil
import subprocess

from helpers.browser import CHROMIUM, browser

NODE = shutil.which("node")
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
