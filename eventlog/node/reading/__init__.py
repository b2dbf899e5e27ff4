"""The read road: which reader waits for what, where it is found, and one answer for all that ask the same."""
