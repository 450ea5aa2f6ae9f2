"""Runs at a URL, for hosts without a shared disk: `push` sends what is new of a run, `pull` makes a run folder of it.

Each host writes below a prefix of its own and nowhere else:

    URL/<id>/<host>-<8 hex>/manifest.json       which packs count; written last
                            <number>.pack       what was new in one push: ranges of files that only grow, and whole files
                            <number>.now.pack   what changes all the time, such as rings; the next push replaces it

`docs/reference/store.md` describes both files.
"""
