"""The two roads through a node. Start reading here: one line a package, in the order in which a request meets them.

WRITING (`await cache.put(...)`)

    transport       bytes -> frames -> an Exchange; one call a request, no task     transport/server.py, wire/session.py
    node.handlers   TABLE: request kind -> handler; `write` makes a Pending         node/handlers/__init__.py, write.py
    node.writing    what waits becomes one group                                    node/writing/: writer.py, groups.py, drafts.py
                    (a few plain events: all that follows, without columns)         node/writing/few.py, lone.py
    batch           every block of the group checked in one pass                    batch/check.py
    interceptor     sequences, conditions, existence -> kind, before-images         interceptor/__init__.py
    ids             one run of ids over the whole group                             ids.py
    batch           one stored value a segment                                      batch/stored.py
    segment         append, sync: the log of RocksDB, in the storage thread         node/writing/storage.py, segment/rocks/store.py
    replication     sent to the backups, held by the in-sync set -> high watermark  node/copying/replicate.py, replication/
    node.writing    commit, one step: watermark, overlay, tail, answers             node/writing/writer.py `_commit`
    node.state      the state follows, without a journal                            node/state/apply.py, node/state/checkpoint.py

READING (`async for event in cache.events(from_id=...)`)

    transport       as above; a stream has credits                                  transport/stream.py
    node.handlers   `poll` and `watch`                                              node/handlers/events.py
    node.reading    position -> limits: low watermark, retention, until             node/reading/answers.py, consume/
    node.reading    the latest groups, in memory                                    node/reading/tail.py
    node.reading    everything older, from the store, in the reader thread          node/reading/history.py
    batch           tiny blocks joined into one, cut at one id                      batch/join.py
    client          columns or events, interleaved by id                            client/
"""
