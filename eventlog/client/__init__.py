"""Both paths, where they begin and end: what applications hold in their hands.

client, cache            what there is to call; a cache is `writes` and `reads` on a `handle`; `core` is what they share
uplink, requests         one connection that heals, and one request on it, tried again until its deadline
writer                   frames of idempotent writes; `backlog`, `changes`, `contents`: from calls to frames, from answers to calls
bulk, formats            pairs, Arrow columns and objects to stored bytes
following, reading       events from a position on; `pieces`, `batches`, `arrow`: from answers to columns and objects
rows                     keys and entries, streamed
values, wording          what calls return, and how messages say it
loop_thread              the asynchronous client for blocking callers: `eventlog.blocking`
"""
