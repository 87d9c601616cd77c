"""Showing: numbers, texts, curves and figures, the same wherever a tool shows them.

May import `ops`, `stats`, `errors`. No torch.

    chart    a curve as a small SVG, with marks where something was noticed
    console  a terminal that shows texts of data and models, and obeys none of them
    curve    a curve in blocks, for terminals
    figure   a matplotlib figure as SVG that follows a page's light or dark
    numbers  numbers as text: intervals, percents, bytes, thousands
    page     one HTML page that needs nothing else, light and dark
    shade    colours that stand for numbers
    text     text of a model, made safe and readable in a terminal
    tokens   a response as a table: a row for each token, a column for each number
"""
