"""Mirrors of caches in Kafka, as far as it goes without Kafka: which there are, who writes what, what comes next after a failure. Pure."""
