"""Run folders: the files of a run, and how they are read back.

May import `recipe`, `parallel` and the packages below. No torch and no model.

    disk         files written aside, synced and renamed; whether the disk is full
    display      a run's progress for its viewer; `Silent` shows nothing
    evaluations  what an evaluation found prompt by prompt, and how it decoded
    folder       a run's folder: made, opened, listed, appended to
    lock         one writer at a time
    lost         what a folder has lost of what its run wrote
    metrics      metrics by name: what a line of metrics.jsonl may hold
    provenance   what a run was made with: versions and sources; what a resume compares
    store        a run's folder kept at a URL, by a plugin
"""
