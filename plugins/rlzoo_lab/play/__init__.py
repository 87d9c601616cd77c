"""`rlzoo play`: a page on which a reader moves lambda, a reward or a value and sees what follows.

May import the layers below the verbs. No torch at the top.

    command  the verb
    page     the scripts, the style and what the zoo declares, as one page

The scripts come after the arithmetic of `rlzoo_lab.pages`. Tests compare both with the zoo's
components, `rlzoo trace` and the oracle.

    world.js      a world of three tokens: exact advantages, bias and variance
    state.js      the reader's choices, and their form in the address
    parts.js      sliders, and numbers that open their arithmetic
    charts.js     points to drag, bars and curves
    credit.js     the numbers of the first view
    response.js, worlds.js, groups.js   the three views
    start.js      tabs, links and the first drawing
"""
