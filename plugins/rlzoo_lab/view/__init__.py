"""How things look: numbers as text, curves, figures, self-contained HTML pages.

May import `format` and the layers below. No torch.

    chart    a curve as a small SVG with marks at findings
    figure   a matplotlib figure as SVG that adapts to a page's light or dark theme
    numbers  numbers as text, and a curve in block characters
    page     one self-contained HTML page, light and dark
    shade    colors for numbers
    written  options that name a file to write, checked before the work starts

advantage.js and derive.js are the zoo's arithmetic, for pages that compute: `page.arithmetic`.
touch.js and touch.css make any page interactive: `page.touch`. page.css is the style of all pages,
and tabs.js the script of `page.tabs`.
"""
