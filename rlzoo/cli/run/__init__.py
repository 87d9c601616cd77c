"""`rlzoo run` and `resume`: training with a live display. (No package is called rlzoo/run, because
`rlzoo.run` is a function.)

May import `train` and the packages below, and no other verb.

    command  train a recipe in a new folder
    lines    a line per step, for logs and pipes; the lab's display shows more
    resume   continue an interrupted run
"""
