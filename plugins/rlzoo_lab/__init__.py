"""The lab: tools and verbs to study runs, found through entry points like any other package's.

May import the core. Verbs do not import each other, with two exceptions: a sweep ends in a
comparison, and a report includes the doctor's findings. A module with `add_arguments` imports no
torch at its top.

    advise      which estimator to prefer, by a short pilot
    api         the Python face: a function for each verb, and a run as an object
    batches     batches that a run saved, read back
    bench       what a step costs
    check       the conformance kit on one component
    checks      the conformance kit
    compare     which configuration is better, by how much, and how sure that is
    completion  what a shell may complete
    diagnose    estimators against the exact truth
    display     what `rlzoo run` shows on a terminal
    doctor      what is wrong with a run
    duration    how long a run may take, estimated
    eval        how good a policy is: accuracy, pass@k, maj@k
    export      a run's model as a transformers folder
    fetch       a recipe from a URL: shown, checked, trained by its checksum
    gguf        GGUF files, converted once to folders that load as any model
    imports     runs of other trainers as run folders
    numbers     numbers as text, and a curve in block characters
    oracle      token MDPs small enough to visit every prefix, so that the truth is exact
    pages       HTML pages and pictures
    play        a page on which a reader moves lambda and sees what follows
    reward_models  outcome and process reward models and their scores
    preview     what `rlzoo show` prints about a run before it begins: memory, time, prompts
    records     runs read back, and which of them can be compared
    report      one page of a run: its trend, a step's groups, a response's tokens
    serve       training while agents play episodes over HTTP
    staged      a folder that is there whole or not at all
    stats       statistics of several runs
    strict      files of lines, read strictly
    supervised  `base`, `sft`, `reward train`: models before reinforcement learning
    sweep       rows of runs, in worker processes
    table       the verbs, for `rlzoo help`
    tiny        the small models that ship: made, not downloaded
    trace       one response, a row per token
    variants    one recipe, and its plan, for each estimator and option to compare
    weights     which weights of a run: at its end, of its best evaluation, of a checkpoint
    words       words of a command line that are a run, a path or options
    written     options that name a file to write, checked before the work
"""
