"""The tools: what stands behind each verb of the command line.

May import `train` and what lies below. Verbs do not know each other; a sweep alone ends in a
comparison, a run's closing table asks what compares, and a report asks the doctor. A module with
`add_arguments` and `command` imports no torch at its top.

    advise      which estimator to prefer, by a short pilot
    bench       what a step costs
    catalog     `plugins`, `recipes`, `show`: what there is, and what a run would hold
    check       the conformance kit on one component
    compare     which configuration is better, by how much, and how sure that is
    completion  what a shell may complete
    diagnose    estimators against the exact truth
    doctor      what a run's metrics say is wrong
    eval        how good a policy is: accuracy, pass@k, maj@k
    export      a run's model as a transformers folder
    guide       what to do first, examples of each verb, keys
    new         a plugin package that works, to be changed
    report      one page of a run: its trend, a step's groups, a response's tokens
    run         `run` and `resume`, and what they show
    supervised  `base`, `sft`, `reward train`: models before reinforcement learning
    sweep       rows of runs, in worker processes
    trace       one response, a row per token
    verb        what verbs share
"""
