"""Near caches: entries kept in this process, told of changes by the log."""
