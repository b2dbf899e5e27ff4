"""Both paths, where they begin and end: what applications hold in their hands.

client, cache            what there is to call; a cache is `writes` and `reads` on a `handle`; `core` is what they share
connections              `nodes`: roads to the nodes of a cluster, each a connection that heals; `watchman` keeps what is `known` of them
                         current; `requests`: one request on such a road, tried again until its deadline
writing                  `writer`, `lane`: idempotent writes, a lane for each primary; `backlog`, `changes`: calls that wait; `contents`:
                         from calls to frames, from answers to calls; `singles`, `writes`, `bulk`: the calls
reading                  `wanted`, `following`: events from a position on; `pieces`, `columns`, `batches`, `frames`: from answers to
                         columns, objects and tables; `rows`, `iterating`: entries; `continuous`: what matches a query, and its changes
members                  consumers of groups, and of groups that share work
near                     entries kept here, told of writes by the log; `table` decides what may be served
cluster, groups          what operators ask of a cluster and of consumer groups; `listeners`: filters registered by name
formats, avro            keys, objects and what Avro takes, to stored bytes and back
values                   what calls return, and how messages say it; `reports`: the same of logs, segments and the cluster
loop_thread              the asynchronous client for blocking callers: `eventlog.blocking`
small                    the calls of short commands, without an event loop: `connections.blocking` are its roads
"""
