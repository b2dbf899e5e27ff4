"""The read road: who waits for what, where it is found, and one answer for all who ask the same."""
