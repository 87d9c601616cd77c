"""`rlzoo doctor RUN`: what a run's metrics say is wrong, and what to try.

May import `train` and what lies below, and no other verb. No torch, no model.

    broken    rules of what holds exactly in any sound run
    command   the arguments, and what is printed
    critic    rules of the critic: whether it learns, what it explains
    learning  rules of learning: whether there is anything to learn, and whether it is learnt
    rule      what a rule is
    rules     all rules, causes first
    series    what the rules share: a finding, thirds and trends
    settings  rules of settings: a key whose value does harm, with what the series say of it
"""
