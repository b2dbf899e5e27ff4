"""Read path, step 2 of 3: how far a reader may see, where it is, and what one answer to it holds. Nothing is read or sent here.

    groups     what a commit hands to readers
    watermark  promises of primaries, and the limit that follows for a reader of some segments
    position   where a reader is, as a value; `token` and `token_json` write it as every surface uses it
    trimmed    what retention took from a position
    cursor     a reader's place while it is being served
    steps      a cache's log indexed by id, coarsely: how many events and bytes lie between two ids
    cut        at which id one answer ends
    answer     the answer, out of stored values
    near       which events concern a near cache, and whose word is enough for it

The node around it must:

1. call `Promises.begin` in the same step as it stamps ids, and `commit` and `settle` in the same step as it shows the events;
2. let no id at or below a promise be stamped any more: what it passes to `Promises.make` has to hold by its clock;
3. raise the trimmed marks before retention deletes, so that a reader who finds a hole finds the mark that explains it.
"""
