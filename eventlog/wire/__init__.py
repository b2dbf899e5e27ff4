"""Both paths, step 2: what travels between two processes, without a socket.

Read in this order: `frames` (bytes of one frame, compressed or not), `reader` (frames out of received bytes), `kinds` (which
messages ask, answer, control), `flow` (credits, byte budgets, memory), `session` (what one end of a connection may say next).
`eventlog_pb2` is generated from schemas/eventlog.proto.

Duties of the code that drives a `Session` (eventlog.transport does):

1. Give `Reader` a place for what arrives, take its frames in order, pass each to `Session.receive`, act on the event returned.
2. Send everything that a method of `Session` returns, in the order of the calls, whole.
3. After each `receive`, send what `Session.take_outgoing()` returns; after `BadFrame` or a lost connection, call `Session.close`.
4. Count what is received and not answered, and what is answered and not sent, in a `ByteBudget`, and stop reading when it is full.
"""
