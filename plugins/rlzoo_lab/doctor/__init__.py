"""`rlzoo doctor RUN`: what is wrong with a run according to its metrics and samples, and what to
try.

May import `train` and below, and no other verb but `checks`. No model; torch only for a run's own
components.

    around    rules: when a run ended, how it was evaluated, and its teacher
    broken    rules: facts that hold exactly in any correct run
    command   the arguments, and what is printed
    components  rules: a run's own components, by `rlzoo check`
    critic    rules: does the critic learn, what does it explain, does that matter
    data      rules: prompts, answers, and how a response is read
    environment  versions, devices, plugins and terminal, for a bug report
    follows   what the scores in samples.jsonl follow
    learning  rules: is there a signal, and does the policy learn it
    outcome   rules: reward hacking, memorization, rewards that rose and fell
    rule      the form of a rule, and which findings it explains
    rules     all of them, causes first
    series    a run's metrics as series, and what rules share
    settings  rules: a key whose value is harmful
    still     rules: a policy that does not move, or moves too little
    suspects  where a run differs from its recipe, if no rule finds the cause
    theirs    text about an imported run, in its trainer's words
"""
