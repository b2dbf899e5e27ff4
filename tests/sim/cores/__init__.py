"""A whole cluster in one process, on virtual time: the product's cores, and everything around them made to fail.

One seed is one run: which faults there are and how often, what clients do, when each message arrives, what a crash loses. The same
seed makes the same run, whatever PYTHONHASHSEED is. A run has a phase of faults, then everything heals and progress is demanded;
checkers judge the recorded history alone.

    scheduler.py   one queue of timed actions; processes that pause and die      loop.py       asyncio on virtual time, a loop a process
    network.py     delays, losses, repetitions, partitions                       disk.py       logs that lose what was not synced
    metadata.py    a metadata store with outages and unknown outcomes            clocks.py     wall clocks that drift and jump
    node.py        what a node's shell does, around the cores                    clients.py    writers and readers
    swarm.py       which faults a seed has                                       cluster.py    one run, from start to verdict
    history.py     what happened, as clients and readers saw it                  checks.py     what must hold of it

No module here decides anything of the protocol: what a node does is decided by `eventlog.replication`, `eventlog.control` and
`eventlog.read`. `python -m tests.sim.cores --seeds 0:100` runs seeds; `docs/simulator.md` says how to replay one.
"""
