"""Plugins: the declarations of components and columns, and how components are found and called.

May import `ops`, `stats`, `errors`. Torch stays in `call`, which is imported when one is called.

    border     whatever a plugin's code raises is an error of that plugin, on one line
    call       the one place where a component is called: zeros off the mask in, shapes checked out
    columns    the table of columns, resources and stages
    component  a function whose signature declares its columns and options; the kinds
    hookspecs  the hooks, one for each kind; `hookimpl`
    installed  entry points of what is installed, quickly
    options    a typed setting with its range, and the words for a value that does not fit
    permissions  which environment variables a recipe may read
    protocols  interfaces of plugins' objects: tasks, loggers, stores, displays; task `abilities`
    registry   finds plugins through entry points and sets the broken ones aside: `load_zoo`
    sketch     what a zoo holds, read off its source: names and options, in a tenth of a second
    watch      reports which plugin takes long to load
"""
