"""The Python API: a function for each verb of the command line, and a run as an object.

A function calls the same code as `rlzoo`, with the same words, checks and errors, and without a
command line in between. May import the rest of the lab and the core. No torch here.

    arguments  the arguments of a verb that Python calls
    document   the result of a verb, as a mapping that displays itself
    notebook   the display of a run in a notebook
    overrides  Python settings as words of the command line
    runs       training, resuming and opening a run as an object
    scores     comparison of scores from any runs
    verbs      the verbs that read, evaluate and compare
"""
