"""The two roads through a client and a node. Start reading here: one line a step, in the order in which a request meets them.

WRITING (`await cache.put(...)`)

    client          key and value -> bytes -> a call, once there is room for it     client/writing/singles.py, writes.py, calls.py
    client          the calls of one moment -> a frame, blocks by segment           client/writing/writer.py `_add`, contents.py
    routing         the lane of its primary, the numbers in that one's window       routing/lanes.py, routing/window.py
    client          out on the lane's connection; the answer comes back there       client/writing/lane.py
    transport       bytes -> frames -> an Exchange; one call a request, no task     transport/server.py, wire/session.py
    node.handlers   TABLE: request kind -> handler; `write` makes a Pending         node/handlers/__init__.py, node/handlers/write.py
    node.writing    what waits becomes one group                                    node/writing/writer.py, write/groups.py, drafts.py
    write           (a few plain events: all that follows, without columns)         write/few.py
    batch           every block of the group checked in one pass                    batch/check.py
    write           sequences, conditions, existence -> kind, before-images         write/chain.py, state/producers.py
    ids             one run of ids over the whole group                             ids.py
    batch           one stored value a segment                                      batch/stored.py
    segment         append, sync: the log of RocksDB, in the storage thread         node/writing/storage.py, segment/rocks/store.py
    replication     sent to the backups, held by the in-sync set -> high watermark  node/copying/replicate.py, replication/
    node.writing    commit, one step: watermark, overlay, tail, answers             node/writing/writer.py `_commit`, write/overlay.py
    state           the state follows, without a journal                            write/apply.py, node/state/checkpoint.py

READING (`async for event in cache.events(from_id=...)`)

    transport       as above; a stream has credits                                  transport/stream.py
    node.handlers   `poll` and `watch`                                              node/handlers/events.py, node/reading/watches.py
    read            where the reader is: its token -> a cursor                      read/token.py, read/cursor.py
    node.reading    position -> limits: low watermark, retention, until             node/reading/answers.py
    node.reading    waiting readers are looked at in rounds                         node/reading/rounds.py
    read            the latest groups, in memory                                    read/tail.py
    node.reading    everything older, from the store, in the reader thread          node/reading/finding.py, read/history.py
    read            at which id the answer ends, and which parts it has             read/answer.py, with a filter read/filtered.py
    batch           tiny blocks joined into one, cut at one id                      batch/join.py
    node.reading    one serialization for all that ask the same                     node/reading/sharing.py
    client          columns or events, interleaved by id                            client/
"""
