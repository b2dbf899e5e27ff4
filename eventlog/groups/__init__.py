"""What is consumed by which member: groups, the work that their members share, registered listeners. Nothing is read, written or sent here.

In the manner of KIP-848: the coordinator assigns, a member reports what it has let go, and a segment is given on only after its
holder let go of it or its session ended.

    coordinator  a member's requests and the clock -> the state to keep, and what members are told; assignors, changes, sessions
    record       what is kept of a group, the fence that a commit has to pass, and how all of it is written and sent
    work         the events of one segment, handed out one by one, each key to one member at a time
    sharing      the work of a group: which member has what of all its segments, what becomes of it, what has to be kept
    listeners    what is kept of a registered listener, and how far it has acknowledged

The node around it must:

1. keep the state that a step returned before anybody is told of it, on condition that the state before is still the kept one, and
   only then `adopt` it;
2. check a commit against the state that it writes the positions on condition of, in one write;
3. report a member's connection as closed only where that member's own connection ended, never because a node was lost.
"""
