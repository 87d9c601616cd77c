"""A key that is given twice on the command line."""

from rlzoo.cli import main


def test_the_last_counts_and_it_is_said(capsys):
    assert main(["show", "grpo", "seed=1", "model=nano", "seed=2"]) == 0
    said = capsys.readouterr()
    assert said.err.count("seed is given 2 times") == 1
    assert main(["show", "grpo", "seed=1", "model=nano"]) == 0
    assert "is given" not in capsys.readouterr().err
