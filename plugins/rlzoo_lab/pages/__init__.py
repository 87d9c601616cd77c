"""Pages and pictures: HTML that needs nothing else, curves, figures.

May import `format` and the layers below. No torch.

    chart   a curve as a small SVG, with marks where something was noticed
    figure  a matplotlib figure as SVG that follows a page's light or dark
    page    one HTML page that needs nothing else, light and dark
    shade   colours that stand for numbers

advantage.js and derive.js are the zoo's arithmetic, for pages that compute: `page.arithmetic`.
touch.js and touch.css are what a reader can touch on any page: `page.touch`.
"""
