"""The store on RocksDB: the one place that knows it.

Three column families (`log`, `state`, `meta`), bytes as they are, files split at segment borders. `opening.py` makes and opens a
database with the one set of options, `reading.py` walks it, `ends.py` keeps the log ends beside it, `store.py` is the port.
"""
