"""`eventlog demo`: nodes of its own, real input, a kill in the middle of writing, and a check of every promise made on the way.

`timezones` reads the input that comes with Python's time zone data, `process` and `cluster` run the nodes, `writers` write all the
while, `checks` compare what is there with what was acknowledged, `story` tells it, `command` is the click command.
"""
