"""`rlzoo doctor RUN`: what a run's metrics say is wrong, and what to try.

May import `train` and what lies below, and no other verb. No torch, no model.

    around    rules of when a run ended, how it was evaluated, its teacher
    broken    rules of what holds exactly in any sound run
    command   the arguments, and what is printed
    critic    rules of the critic: whether it learns, what it explains, whether that matters
    learning  rules of learning: what there is to learn, and whether it is learnt
    outcome   rules of what came of a run: gamed, learnt by heart, risen and fallen
    rule      what a rule is, and which findings it explains
    rules     all of them, causes first
    series    a run's metrics as series, and what a rule finds in them
    settings  rules of settings: a key whose value does harm
    still     rules of a policy that stays where it is
    suspects  what a run has that its recipe has not, where no rule knows the cause
"""
