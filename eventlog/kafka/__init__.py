"""Events as Kafka's records, out of columns: nothing here knows a broker, a client or a clock.

records     columns -> record batches of format 2, all partitions of a read in one pass
envelope    what a record's key and value say: Debezium's envelope, an upsert, or the event as it is; JSON, a read in one call
avro        the same in Avro's encoding
shape       how a cache's events are told, and the schemas of that
declared    the type that values have: an Avro schema, or a JSON Schema
letters     dead letters: what a topic cannot have
"""
