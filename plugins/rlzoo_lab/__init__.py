"""The lab: tools and verbs to study runs, found through entry points like any other package's.

May import the core. Verbs do not import each other, with three exceptions: a sweep ends in a
comparison, a report includes the doctor's findings, and `doctor --retrain` runs a sweep. A module
with `add_arguments` imports no torch at its top.

    api         the Python API: a function for each verb, and a run as an object
    compare     which configuration is better, by how much, and with what confidence
    completion  shell completion
    credit      measures of each step that the doctor reads
    data        what a run's folder contains: the only code that opens its files
    declared    a verb's options, as declared by its Python function
    diagnose    estimators against the exact truth
    display     what `rlzoo run` shows in a terminal
    doctor      what is wrong with a run
    eval        how good a policy is: accuracy, pass@k, maj@k
    imports     runs of other trainers as run folders
    kit         for authors of components: a template, the conformance kit, exact oracles
    models      reward models, GGUF files, previews, exported models
    play        an interactive page that shows the effect of lambda
    report      a page about a run: its trend, a step's groups, a response's tokens
    retrain     `rlzoo doctor --retrain`: which difference from the recipe harms a run
    serve       training while agents play episodes over HTTP
    show        a resolved recipe with the origin of each value
    stats       statistics of several runs
    supervised  `model sft`, `reward`, `base`: models before reinforcement learning
    sweep       rows of runs, in worker processes
    table       the verbs, for `rlzoo help`
    trace       one response, a row per token
    view        numbers, tables, curves and pages as text, HTML and pictures
"""
