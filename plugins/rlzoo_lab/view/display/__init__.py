"""The display of a run in a terminal: a panel during training, tables at the end. No torch.

May import `rlzoo.cli.run`, `data` and `view`. `rlzoo run` finds `make` by the entry point
`display` of the group `rlzoo.names`.

    live    the panel, or plain lines followed by tables
    run     a run as blocks: curve, scores, numbers, samples
    tables  a finished run compared with earlier ones, and its last samples
"""

from rich.console import Console

from rlzoo.cli.run.lines import Lines
from rlzoo_lab.view.display.live import Panelled, Plain


def make(console: Console) -> Lines | Panelled:
    """A panel in a terminal that can redraw, plain lines otherwise."""
    redrawn = console.is_terminal and not console.is_dumb_terminal
    return Panelled(console) if redrawn else Plain(console)
