"""Adapters of the metadata port: a SQLite file for one host, memory for tests; and `resolving`, which any of them goes through."""
