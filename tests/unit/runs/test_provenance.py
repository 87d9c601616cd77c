"""A recipe of then, and the keys that came since."""

from rlzoo.runs.provenance import _with_new_keys


def test_what_was_recorded_stays_and_new_keys_have_their_defaults():
    origins = {"a": "/x/defaults.yaml", "b": "/x/defaults.yaml", "c": "command line"}
    now = {"a": 2, "b": 3, "c": 4}
    assert _with_new_keys({"a": 1}, now, origins) == {"a": 1, "b": 3}
