"""Evaluations of a run: their decoding settings and results per prompt.  No torch.

    evaluations/step-N.safetensors

Arrays (prompts,) in the order in which the seed draws them: `index` in the task's data (or the
prompt's checksum), `prompt`, the checksum of its text and answer, `score`; `right` (0 or
1) and `answer_prob` where the task has them.
Some 13 to 21 bytes a prompt. safetensors is imported inside functions: few commands read them.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlzoo.runs.disk import write_atomically
from rlzoo.runs.folder import RunFolder, saved_steps, step_of

Arrays = Mapping[str, Any]

PLACE = "evaluations"  # their folder in a run's


def write_evaluation(folder: RunFolder, step: int, by_prompt: Arrays) -> None:
    """Write the file atomically, without `score` if it equals `right`."""
    from safetensors.numpy import save

    arrays = dict(by_prompt)
    if "right" in arrays and (arrays["score"] == arrays["right"]).all():
        del arrays["score"]
    place = folder.path / PLACE
    place.mkdir(exist_ok=True)
    write_atomically(place / f"step-{step:08d}.safetensors", save(arrays))


def read_evaluation(path: Path, step: int) -> dict[str, Any] | None:
    """The arrays of a run's evaluation after `step`; None if there are none that can be read:
    runs from before they were kept."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays = load_file(path / PLACE / f"step-{step:08d}.safetensors")
    except (OSError, SafetensorError):
        return None
    if "score" not in arrays and "right" in arrays:
        arrays["score"] = arrays["right"].astype("float32")
    return arrays


def forget_evaluations(folder: RunFolder, step: int) -> None:
    """Remove the arrays after `step`, since a resumed run writes them again."""
    for path in saved_steps(folder.path / PLACE, ".safetensors"):
        if step_of(path) > step:
            path.unlink()
