"""The kit for authors of components: a template, checks of the contract, and exact truth.

May import `data` and the core; no study.

    checks   the conformance kit: small named checks for each kind of component
    command  `rlzoo check`: the conformance kit on one component or a model
    foreign  functions of other libraries, and of files, as components
    new      `rlzoo new`: a working plugin package as a template
    oracle   token MDPs small enough to compute exact values from every prefix
"""
