"""`eventlog demo`: a node of its own, real input, a kill in the middle of writing, and a check of every promise made on the way.

`timezones` reads the input that comes with Python's time zone data, `node` runs the node as a child process, `writers` write until
the node dies, `checks` compare what is there with what was acknowledged, `story` tells it, `command` is the click command.
"""
