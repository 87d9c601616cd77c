"""A recipe of then, and the keys that came since; the code that ranks and resumed runs compare."""

import rlzoo
from rlzoo.recipe.compose import compose
from rlzoo.recipe.plan import make_plan
from rlzoo.runs.provenance import _with_new_keys, code_of

HALVES = (
    "from rlzoo import hookimpl\n\n"
    "def halves(sequence_rewards, response_mask):\n"
    '    """A = R / 2.  Source: a test."""\n'
    "    return sequence_rewards[:, None] / 2 * response_mask\n\n"
    "@hookimpl\ndef register_estimators(register):\n    register(halves)\n"
)


def test_what_was_recorded_stays_and_new_keys_have_their_defaults():
    origins = {"a": "/x/defaults.yaml", "b": "/x/defaults.yaml", "c": "command line"}
    now = {"a": 2, "b": 3, "c": 4}
    assert _with_new_keys({"a": 1}, now, origins) == {"a": 1, "b": 3}


def test_a_strangers_plugin_is_part_of_the_code(tmp_path):
    plugin = tmp_path / "stranger.py"

    def code(text):
        plugin.write_text(text)
        zoo = rlzoo.load_zoo([plugin])
        return code_of(make_plan(compose(["grpo", "estimator=halves"], zoo), zoo))

    one = code(HALVES)
    assert one == code(HALVES)
    other = code(HALVES.replace("/ 2", "/ 3"))
    changed = {
        key for key in one["components"] if one["components"][key] != other["components"][key]
    }
    assert changed == {"estimator halves"}
