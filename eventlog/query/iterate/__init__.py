"""Iteration: every entry once, whatever becomes of the nodes that it is read from. Nothing is read or sent here.

    bitset     sets of segments as they are sent
    progress   where an iteration is: a key for each segment that was begun, nothing for one that is done
    scopes     which segments an iteration is over

The reader around it must:

1. note a batch (`IterationProgress.took`) in the same step as it hands the batch on: then a new start repeats nothing and skips nothing;
2. read a segment that was begun on after its last key, as of the id that it was read as of before, or a later one.
"""
