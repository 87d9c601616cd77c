"""Plugins: the declarations of components and columns, and how components are found and called.

May import `ops`, `stats`, `errors`. Torch stays in `call`, which is imported when one is called.

    border     turns any error in a plugin's code into a one-line error of that plugin
    call       the one place that calls components: masks inputs, checks outputs
    columns    the table of columns, resources and stages
    component  a function whose signature declares its columns and options; the kinds
    hookspecs  the hooks, one for each kind; `hookimpl`
    installed  fast access to installed entry points
    options    a typed setting with its range, and errors for invalid values
    permissions  which environment variables a recipe may read
    protocols  interfaces of plugins' objects: tasks, loggers, stores, displays; task `abilities`
    registry   finds plugins through entry points and leaves out broken ones: `load_zoo`
    sketch     names and options in a zoo, read from its source in a tenth of a second
"""
