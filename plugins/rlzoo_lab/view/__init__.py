"""How things look: a verb makes blocks, and each format is written once, for all blocks.

May import `rlzoo.format`, `rlzoo.errors` and files of the core: no verb, no statistics.

    blocks    text, table, curve, tokens, note: plain values
    chart     a curve as SVG
    declared  a verb's options, as declared by its Python function
    display   what `rlzoo run` shows in a terminal
    figure    a curve by matplotlib, for files; other figures in the same style
    html      blocks on a page, or in a notebook
    numbers   numbers as text and as colours, and a curve in block characters
    page      one self-contained HTML page, light and dark
    terminal  blocks in a terminal
    texts     the blocks of a verb, also as Markdown, LaTeX and CSV
    written   options that name a file to write, checked before the work starts

touch.js and touch.css make any page interactive: `page.touch`. page.css is the style of all pages,
and tabs.js the script of `page.tabs`.
"""
