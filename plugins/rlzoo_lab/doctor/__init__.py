"""`rlzoo doctor RUN`: what is wrong with a run according to its metrics and samples, and what to
try.

May import `train` and below, and no other verb but `checks`. No model; torch only for a run's own
components.

    agents    rules: what an agent's episode is paid for, and what it wrote itself
    broken    rules: facts that hold in any correct run
    command   the arguments, and what is printed
    components  rules: a run's own components, by `rlzoo check`
    data      rules: prompts, answers, what is held out, and when the run ended
    environment  versions, devices, plugins and terminal, for a bug report
    report    `rlzoo report`: a page about a run: its trend, a step's groups, a response's tokens
    retrain   `rlzoo doctor --retrain`: which difference from the recipe harms a run
    rule      the form of a rule: a cause, a symptom or an aside
    rules     all of them, causes first
    series    a run's metrics as series, and what rules share
    settings  rules: a key whose value is harmful
    suspects  where a run differs from its recipe, if no rule finds the cause
    symptoms  rules: is there a signal, and does the policy learn it
    theirs    text about an imported run, in its trainer's words
"""
