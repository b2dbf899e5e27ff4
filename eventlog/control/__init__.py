"""What the cluster is: identity, members and their id leases, owners of segments, caches. Kept in a metadata store behind a port.

A node calls `cluster.ClusterRecords` when it starts and once a second; that reads records, lets the pure modules plan, and commits
what they planned, all or nothing, against the revisions they saw. A conflict means: read again, plan again.

    metastore.py     the port                       metastores/     its adapters, and what resolves unknown outcomes
    records.py       what is stored, as JSON        view.py         the records of members and segments as read
    membership.py    node numbers, leases of ids    appointment.py  primaries and their floors
    placement.py     which node holds which segment   controller.py   repair, moves, rebalancing, appointments: the next commit
    cluster.py       the driver over members and segments           caches.py        create, alter, drop, and their driver
"""
