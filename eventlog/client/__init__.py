"""Both paths, where they begin and end: what applications hold in their hands.

client, cache            what there is to call; a cache is `writes` and `reads` on a `handle`; `core` is what they share
nodes, uplink            roads to the nodes of a cluster, each a connection that heals; `watchman` keeps what is `known` of them current
requests                 one request on such a road, tried again until its deadline
writer, lane             idempotent writes: a lane for each primary; `undecided` frames are those whose fate is open
backlog, changes         calls that wait; `contents`: from calls to frames, from answers to calls
bulk, formats            pairs, Arrow columns and objects to stored bytes
following, reading       events from a position on; `pieces`, `batches`, `arrow`: from answers to columns and objects
continuous               which entries match a query, and every change of that
near, near_tail          entries kept here, told of writes by the log; what may be served decides `near_table`
rows                     keys and entries, streamed from all primaries
cluster                  what operators ask of a cluster
values, wording          what calls return, and how messages say it; `reports`: the same of logs, segments and the cluster
loop_thread              the asynchronous client for blocking callers: `eventlog.blocking`
small                    the calls of short commands, without an event loop: `connections.blocking` are its roads
"""
