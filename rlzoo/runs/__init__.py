"""Run folders: what a run leaves on disk, and how it is read again.

May import `recipe`, `parallel` and what lies below. No torch and no model.

    disk        files written aside, synced and renamed; whether the disk is full
    display     what a run tells whoever watches it; `Silent` says nothing
    folder      a run's folder: made, opened, listed, appended to
    metrics     metrics by name: what a line of metrics.jsonl may hold
    provenance  what a run was trained by, and whether it goes on by the same
    record      a run read back: its steps, evaluations, recipe and summary
"""
