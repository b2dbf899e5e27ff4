"""The HTTP port of a node: health for whoever supervises it, metrics for Prometheus. A service of the node, not part of it."""
