"""Ranks compare the code that they run: rlzoo's, and that of every plugin, a stranger's too."""

import rlzoo


def test_a_strangers_plugin_is_part_of_the_code_that_ranks_compare(zoo, tmp_path):
    plugin = tmp_path / "stranger.py"
    text = (
        "from rlzoo import hookimpl\n\n"
        "def halves(sequence_rewards, response_mask):\n"
        '    """A = R / 2.  Source: a test."""\n'
        "    return sequence_rewards[:, None] / 2 * response_mask\n\n"
        "@hookimpl\ndef register_estimators(register):\n    register(halves)\n"
    )
    plugin.write_text(text)
    one = rlzoo.load_zoo([plugin]).code_digest()
    assert one == rlzoo.load_zoo([plugin]).code_digest() != zoo.code_digest()
    plugin.write_text(text.replace("/ 2", "/ 3"))
    assert rlzoo.load_zoo([plugin]).code_digest() != one
