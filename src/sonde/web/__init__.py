"""The server behind `sonde ui`: runs in a browser, from the verdict to single values. It only reads.

    serve     finds a port, prints the address, runs until Ctrl-C          access    who may ask: token, Host, Origin, methods
    app       the routes                                                   asking    one question: its parameters, worker thread, limits, errors
    folder    the runs of the folder, and those that are open              pages     static files, and the page for every other address

`endpoints/` has one file for each address; docs/reference/web.md describes them.
"""
