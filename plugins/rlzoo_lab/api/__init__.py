"""The Python face: a function for each verb of the command line, and a run as an object.

A function makes a command line of its arguments and goes the way that `rlzoo` goes: the same words,
the same checks, the same errors. May import `cli`, `tools` and the layers below. No torch here.

    document   what a verb found, as a mapping that shows itself
    figures    a run's curves, by matplotlib
    notebook   what a run shows in a notebook while it goes
    overrides  settings as Python has them, as words of the command line
    picture    a run as HTML: curve, numbers, samples
    runs       train, resume, open: a run as an object
    scores     scores of any runs, compared
    verbs      the verbs that read, judge and compare
"""
