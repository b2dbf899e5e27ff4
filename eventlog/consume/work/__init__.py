"""Work sharing: one segment's events handed out one by one, each key to one member at a time. Nothing is read, written or sent here.

    queue    the events of a segment above the group's position: who has which, what is done, what is tried again when
    record   how that is written into the internal cache of groups

The node around it must keep what a step changed before anybody is told of it, and forget everything when it cannot be kept.
"""
