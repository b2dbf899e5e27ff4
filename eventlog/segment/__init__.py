"""Write path, step 5 of 7: the log and the current state of the segments that a node holds.

`port.py` is what an engine must do, over bytes and ranges; `rocks/` and `memory.py` do it. `keys.py` says what the bytes are.
`recovery.py`, `retention.py` and `check.py` decide, from what they are given, what the node does next; they keep no files.
"""
