"""Events as Kafka's records, out of columns: nothing here knows a broker, a client or a clock.

records     columns -> record batches of format 2, all partitions of a read in one pass
envelope    what a record's key and value say: Debezium's envelope, an upsert, or the event as it is
columns     byte strings as columns of arrow, and the few ways in which they are put together
"""
