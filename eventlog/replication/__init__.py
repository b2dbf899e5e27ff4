"""Write path, step 6: what a segment's primary does between append and acknowledgement, without I/O.

The shell's duties, in this order:

    1. appoint: call `PrimaryCore.appoint` with what the metadata store committed; append the marker it returns in the new epoch.
    2. append: register a group with `append` in the same step as it is stamped; write it here and send it to the backups.
    3. acknowledge: when a member's log holds the group on disk, call `acknowledged`; what it returns is committed.
    4. Answer clients and show readers nothing above the high watermark.

With one node the in-sync set is that node: the same calls, no messages.
"""

from eventlog.replication.primary import PrimaryCore

__all__ = ["PrimaryCore"]
