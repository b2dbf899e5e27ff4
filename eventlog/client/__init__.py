"""Write path, step 1 of 7, and the last of the read path: what applications hold in their hands.

    connect      opens a Client on one or several addresses: `async with eventlog.connect("127.0.0.1:7400") as client`
    client       caches and administration            cache       one cache: writing, reading, events
    uplink       a connection that heals              requests    one request, tried again until its deadline
    writer       frames of idempotent writes          items, changes, outcomes   calls to frames, answers to calls
    reading      events from a position on            pieces, batches, arrow     answers to columns and objects
    rows         keys and entries, streamed           formats, values, wording   what goes in, what comes out

`eventlog.blocking` is the same for code without an event loop.
"""
