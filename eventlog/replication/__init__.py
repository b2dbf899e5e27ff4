"""Write path, step 6: the protocol of one node's replicas, without I/O, clock or chance. Inputs are calls, effects are returned.

`Replication` holds all segments of a node, whatever its part in each: primary, backup, or none. Every input returns commands
(`commands.py`), which the shell carries out in their order. One node is no special case: its in-sync sets are itself.

The shell's duties:

    1. Open. Recover the store, then `open` with log ends, epoch histories and the ids up to which the state is applied. Lost disk:
       a new incarnation, so that no in-sync set names it, and the ends that are really there. Then `learn` all segment records; a
       term that was there before the process began is never led (`session` says whose process it was given to).
    2. Records. Every record seen (watch, own commit, conflict) goes to `learn`, in any order. `Mark` asks for markers: raise the
       clock above the floors, stamp one id a segment, `mark` in that same step, append the markers (values without events in cache
       0) with their epoch rows to the own log, and call `written` when they are on disk. `Lead` follows when the tail is adopted.
       `Recheck` asks for records as they are in the store now: `learn` them, then `rechecked`; `LookUp` the same, with `looked_up`.
    3. Append. A group is stamped and registered in one step: `append`. Then write it here, in order with all else that is written,
       and carry out the `Send`s meanwhile; on disk: `written`. `Committed` says what may be answered and shown. One group a segment
       is in flight at a time. Up to `written` the shell keeps the group's values, for `ReadLog`.
    4. Messages. APPEND rows arrive: `receive`; ACK rows: `acknowledged`. Check CRCs and base ids of the values before `receive`
       (a damaged message is not passed on), and that the sender is the one it says. `Write`: append in order with the rest; many writes
       may share one sync; then `stored`. Values whose rows a `Write` does not name are dropped. The first value of a row has a base
       id above the row's `previous`. `Keep`: the message names a term that no record seen names; keep it, with what came with it,
       until `Take` says to pass it to `receive` again. `allow_ids` is called now and then with what can have been issued by now.
    5. One writer. Own groups, `Write`, `Cut`, installs of one segment reach the disk in the order in which the core asked.
       What stands beside the log as its end is what was written, not `ends`, which may be ahead by what is in flight.
    6. Peers. `connected(replica)` once messages can be sent to it, `lost(replica)` when the connection is gone; what was under way
       in either direction may be lost, doubled or late, but never changed.
    7. Time. `look` about every 50 ms unless all `is_quiet`; `now_ms` is monotonic. Where nothing happens that is a few array operations.
    8. Proposals. `Propose` -> compare-and-set on exactly that revision -> `learn` (committed, or what is there instead), or
       `withdrawn` if it cannot ever be committed. As long as the outcome is unknown: neither.
    9. Catching up. `ReadLog` -> read from the store off the loop; then, in the step that calls `log_read`, add the values of this
       segment that are in flight (own groups, and `Write`s of an earlier primary) and follow what was read without a gap. `upto` is
       the id with which the log ends after them.
       `trimmed` tells what retention removed; one that lacks that gets a snapshot: `OpenSnapshot`, `ReadSnapshot`, `CloseSnapshot` here,
       `BeginInstall`, `InstallPart`, `EndInstall` there.
    10. Watermarks. `Learned`: apply up to there, never beyond. `promised` takes the last ids that promises name. Of a promise only
        what `believes` lets pass is heard anywhere.
    11. Fatal errors (a sync that failed, a command that cannot be carried out) end the process: nothing is retried in place.

A restart loses everything in memory, and needs no more than what 1 says.
"""

from eventlog.replication.commands import Commands
from eventlog.replication.messages import Message
from eventlog.replication.replica import Replication
from eventlog.replication.terms import EpochStart, GivenUpRange, Options, Replica, Term

__all__ = ["Commands", "EpochStart", "GivenUpRange", "Message", "Options", "Replica", "Replication", "Term"]
