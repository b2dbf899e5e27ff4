"""The simulator of mirrors: the product's shards on virtual time, over a log and a Kafka that are only played (`run.py`)."""
