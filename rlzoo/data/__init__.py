"""Data: rows of files and data sets, and pairs to learn from.

May import `ops`, `stats`, `errors`. No torch, and nothing that is read is ever executed.
Plugin authors import from here `read`, `messages_of` and `hold_out`.

    files  rows of JSONL, Parquet, folders of `datasets` and the hub; chat messages checked
    pairs  preferences and demonstrations; rows held out by their prompt
"""

from rlzoo.data.files import messages_of, read
from rlzoo.data.pairs import hold_out

__all__ = ["hold_out", "messages_of", "read"]
