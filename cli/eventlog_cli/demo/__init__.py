"""`eventlog demo`: nodes of its own, real input, a kill in the middle of writing, and a check of every promise made on the way.

`input` reads what is loaded, the time zone data that come with Python or a file, `cluster` runs the nodes, `checks` compare what is there
with what was acknowledged, `story` tells it while its writers write, `spark` tells another,
of an archive and one read over both, `command` is the click command.
"""
