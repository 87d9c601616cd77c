"""`rlzoo run` and `resume`: training, watched. (No package is called rlzoo/run: `rlzoo.run` is
a function.)

May import `train` and what lies below, and no other verb, but of `compare` what runs compare.

    command  train a recipe in a new folder
    live     a live panel in a terminal, plain lines elsewhere
    resume   go on with an interrupted run
    tables   the tables at the end of a run
"""
