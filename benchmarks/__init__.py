"""Benchmarks of one node, each beside its bare baseline measured in the same run: `python -m benchmarks [NAME ...] [--quick]`.

    figures    rows of a result, and how they are printed        machine    what it ran on, and who else was busy
    processes  a node or a function in a process of its own      inputs     keys, values, frames
    traffic    what a client process does to a node              baseline   bare rocksdict, tuned as the node tunes it
    ceilings   loopback, fdatasync, objects, JSON lines            floor      the least that any server costs

The other modules are one benchmark each, with a `run(scale)`. Nothing here asserts on time: a figure is printed beside its target
with the word reached or missed, and the exit code says only whether everything ran.
"""
