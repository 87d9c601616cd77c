"""`rlzoo play`: an interactive page that shows the effect of lambda, rewards and values.

May import the layers below the verbs. No torch at the top.

    command  the verb
    page     the scripts, the style and data about the zoo, as one page

advantage.js and derive.js are the zoo's arithmetic. Tests compare both with the zoo's
components, `rlzoo trace` and the oracle.

    world.js      a world of three tokens: exact advantages, bias and variance
    state.js      the user's choices, and their encoding in the URL
    parts.js      sliders, and numbers that show their arithmetic
    charts.js     points to drag, bars and curves
    credit.js     the numbers of the first view
    response.js, worlds.js, groups.js   the three views
    start.js      tabs, links and the first drawing
"""
