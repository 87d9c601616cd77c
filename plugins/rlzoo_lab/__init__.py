"""The lab: tools and verbs to study runs, found through entry points like any other package's.

May import the core. Verbs do not import each other, with three exceptions: a sweep ends in a
comparison, a report includes the doctor's findings, and `doctor --retrain` runs a sweep. A module
with `add_arguments` imports no torch at its top.

    api         the Python API: a function for each verb, and a run as an object; verbs of one file
    compare     which configuration is better: a comparison, a sweep, an evaluation
    data        what a run's folder contains: the only code that opens its files
    diagnose    estimators against the exact truth, and one response token by token
    doctor      what is wrong with a run, by rules or by retraining, and a page about it
    imports     runs of other trainers as run folders
    kit         for authors of components: a template, the conformance kit, exact oracles
    stats       statistics of several runs
    supervised  models before reinforcement learning: `sft`, `reward`, `base`; exported models
    table       the verbs, for `rlzoo help`
    view        numbers, tables, curves and pages as text, HTML and pictures
"""
