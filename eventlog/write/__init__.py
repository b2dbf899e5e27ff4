"""Write path, step 4: what happens to a group of writes on the primary of their segments, before it is appended.

A group's writes to one cache are a `Share`: columns of all their events, in order of arrival. The interceptors run over it one
after the other when the group is closed, after the previous group of its segments has committed, so what they see of the current
state is exact. Each takes the share and changes its columns; none does I/O. `plan_reads` says beforehand which entries they will
look at, and the caller puts those into `share.entries`.

    1. admission    whole blocks checked, keys placed in their segments        admission.py
    2. conditions   blocks whose versions do not match are refused             chain.py
    3. existence    put -> CREATED or MODIFIED, remove -> REMOVED or nothing   chain.py
    4. images       values replaced, expired entries met, lifespans            chain.py
    5. stamp        order by segment, sections, ids                            stamp.py

Around them: `groups` takes waiting writes together and their answers apart, `drafts` leads a group through the above, `overlay`
holds what is committed and not in the store yet, `apply` says what a committed group does to the state. `few` is the short road
for a few plain events.
"""

from eventlog.write.admission import admit
from eventlog.write.chain import INTERCEPTORS, plan_reads
from eventlog.write.share import Share, Submitted
from eventlog.write.stamp import Stamped, lay_out

__all__ = ["INTERCEPTORS", "Share", "Stamped", "Submitted", "admit", "lay_out", "plan_reads"]
