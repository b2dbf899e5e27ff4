"""Both paths, step 3: a wire session on a socket, for clients, nodes and peers alike.

`link` moves bytes (one write a tick, pausing a peer that has too much under way), `connection` asks and answers on it,
`server` accepts, `connect` opens. A request costs no task: its answer is a future, its arrival one call of `dispatch`.

`blocking` is the same session on a socket that waits, for a process that asks little and ends. What both shells know is in modules that
import no event loop: `greeting`, `stream`.

Duties of a server's `dispatch`:

1. It returns soon. What takes long answers later, from wherever on the same loop.
2. Every `Exchange` is answered, failed or, a stream, ended: once.
3. Large answers are made when `Exchange.has_room`, or after `await Exchange.room()`; items of a stream after `await
   Exchange.credit()`. So a peer that does not read costs what is already made and nothing else.
"""
