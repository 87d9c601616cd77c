"""`rlzoo doctor RUN`: what a run's metrics say is wrong, and what to try.

May import `train` and what lies below, and no other verb. No torch, no model.

    command  the arguments, and what is printed
    rules    the rules, one function each
    series   a run's metrics as series, and what a rule finds in them
"""
