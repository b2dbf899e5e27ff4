"""What is kept for consumers: listeners, groups, work, near caches, in the internal caches of the cluster."""
