"""What a node knows of a cache in its segments: counters, marks, the keys that are there, producers. Pure.

    caches      the caches of a node, and of each its options, offsets, retention marks and counters
    key_table   which keys are there, by their hashes, so that existence costs no look into the store
    producers   the last sequences of idempotent producers, and the results to answer a repetition with
    replay      the state from the log, after a crash

What a committed group does to it is `write/apply.py`. The entries themselves are in the store (`segment/`).
"""
