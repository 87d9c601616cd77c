"""The Python API: a function for each verb of the command line, and a run as an object. Also the
verbs that are one file.

A function calls the same code as `rlzoo`, with the same words, checks and errors, and without a
command line in between. May import the rest of the lab and the core. Torch: only for `preview`.

    arguments  the arguments of a verb that Python calls, and settings as words
    completion  shell completion
    document   the result of a verb, as a mapping that displays itself
    notebook   the display of a run in a notebook
    play       `rlzoo play`: an interactive page that shows the effect of lambda
    preview    what `rlzoo show` prints about a run before it starts: memory, prompts
    runs       training, resuming and opening a run as an object
    scores     comparison of scores from any runs
    serve      `rlzoo serve`: training while agents play episodes over HTTP
    show       `rlzoo show`: a resolved recipe with the origin of each value
    verbs      the verbs that read, evaluate and compare
"""
