"""Pages and pictures: self-contained HTML, curves, figures.

May import `format` and the layers below. No torch.

    chart   a curve as a small SVG with marks at findings
    figure  a matplotlib figure as SVG that adapts to a page's light or dark theme
    page    one self-contained HTML page, light and dark
    shade   colors for numbers

advantage.js and derive.js are the zoo's arithmetic, for pages that compute: `page.arithmetic`.
touch.js and touch.css make any page interactive: `page.touch`. page.css is the style of all pages,
and tabs.js the script of `page.tabs`.
"""
