"""Read path, step 2 of 3: how far a reader may see, where it is, and what one answer to it holds. Nothing is sent here.

    watermark   promises of primaries, and the limit that follows for a reader of some segments
    position    where a reader is, as a value; `token` writes it as every surface uses it
    cursor      a reader's place while it is being served, and what retention or a forced takeover took from it
    steps       a cache's log indexed by id, coarsely: how many events and bytes lie between two ids
    answer      at which id one answer ends, and the answer, out of stored values that a commit hands to readers
    filtered    the answer to a reader with a filter, out of what one node or several found
    state       where a reader is that reads the state first
    near        which events concern a near cache, and whose word is enough for it
    tail        the latest committed groups, in memory
    history     everything older, from a store that the reader thread hands over

The node around it must:

1. call `Promises.begin` in the same step as it stamps ids, and `commit` and `settle` in the same step as it shows the events;
2. let no id at or below a promise be stamped any more: what it passes to `Promises.make` has to hold by its clock;
3. raise the trimmed marks before retention deletes, so that a reader that finds a hole finds the mark that explains it.
"""
