"""The simulator of consumers: groups, readers with filters and reads of state, on virtual time, with everything around them failing.

What decides is the product's, and here most of its shells too: `eventlog.node.consumers.coordinator` keeps groups in an
internal cache that is simulated (`shelf.py`), `eventlog.client.members.member` joins them. `groups.py` is one run of a group,
`reading.py` one of readers; `run.py` runs seeds of both.
"""
