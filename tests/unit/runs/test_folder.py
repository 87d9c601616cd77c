"""Lines of a run's folder."""

from rlzoo.runs.folder import RunFolder


def test_rewinding_keeps_the_step_it_goes_back_to(tmp_path):
    file = tmp_path / "metrics.jsonl"
    lines = [f'{{"step": {n}}}\n' for n in range(4)]
    file.write_text("".join(lines))
    RunFolder(tmp_path).rewind("metrics.jsonl", 1)
    assert file.read_text() == "".join(lines[:2])
