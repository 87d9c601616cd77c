"""Data: rows of files and data sets.

May import `ops`, `stats`, `errors`. No torch, and nothing that is read is ever executed.
Plugin authors import from here `read`, `messages_of` and `hold_out`.

    files  rows of JSONL, Parquet, folders of `datasets` and the hub; chat messages checked
"""

from rlzoo.data.files import hold_out, messages_of, read

__all__ = ["hold_out", "messages_of", "read"]
