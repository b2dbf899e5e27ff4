"""The HTTP port of a node: health for whoever supervises it, metrics for Prometheus, schemas for Kafka's clients. A service of the node."""
