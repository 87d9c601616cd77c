"""`rlzoo run` and `resume`: training with progress output. (No package is called rlzoo/run:
`rlzoo.run` is a function.)

May import `train` and the packages below, and no other verb.

    command  train a recipe in a new folder
    lines    a line per step, for logs and pipes; the lab's display shows more
    resume   continue an interrupted run
"""
