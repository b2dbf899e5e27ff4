"""Events as columns: the layout, building it from keys and values, checking what others built, viewing it without copies.

Both roads use it: clients build blocks, the primary checks and stores them as they are, readers join and view them.
"""
