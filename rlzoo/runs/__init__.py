"""Run folders: the files of a run, and how they are read back.

May import `recipe` and the packages below. No torch and no model.

    disk         atomic, synced file writes; whether the disk is full
    display      interface of a run's display; `Silent` shows nothing
    evaluations  results of an evaluation per prompt, and its decoding settings
    folder       a run's folder: creating, opening, listing and appending
    lock         one writer at a time
    metrics      metrics by name: the keys in metrics.jsonl
    provenance   the versions, sources and contents of a run, which a resume compares
    store        a copy of a run's folder at a URL, by a plugin
"""
