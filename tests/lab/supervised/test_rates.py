"""A rate, a share, an accuracy that is no finite number trains nothing."""

import pytest

from rlzoo.cli import main


@pytest.mark.parametrize("text", ["inf", "nan", "-inf"])
@pytest.mark.parametrize("option", ["--lr", "--epochs"])
def test_of_sft(tmp_path, capsys, option, text):
    data = tmp_path / "pairs.jsonl"
    data.write_text('{"prompt": "1+1=", "response": "2"}\n' * 8)
    words = ["model", "sft", str(data), "--model", "nano", "--out", str(tmp_path / "out")]
    assert main([*words, f"{option}={text}"]) == 2
    assert option in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("option", ["--lr", "--accuracy"])
@pytest.mark.parametrize("text", ["inf", "nan"])
def test_of_base(tmp_path, capsys, option, text):
    assert (
        main(["model", "base", "addition", "--out", str(tmp_path / "out"), f"{option}={text}"]) == 2
    )
    assert option in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
