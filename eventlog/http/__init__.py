"""The HTTP port of a node: health for a supervisor, metrics for Prometheus, schemas for Kafka's clients. A service of the node."""
