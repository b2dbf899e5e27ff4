"""Kafka by aiokafka (`eventlog[kafka]`): the only place that imports it."""
