"""The simulator of consumers: readers, near caches, work and mirrors, on virtual time, with everything around them failing.

What decides is the product's; the log that it reads is played (`log.py`), and Kafka, too. `reading.py` is one run of readers, `near.py`
one of near caches, `work.py` of members that share work, `mirrors.py` of a mirror; `run.py` runs seeds of all. Members of groups are
played on whole nodes, in `tests/sim/cluster/grouping.py`.
"""
