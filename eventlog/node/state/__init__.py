"""The current state of the caches: made from the log, kept with it, and read at one moment."""
