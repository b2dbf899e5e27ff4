"""Spark, by PySpark: a cache as a batch and as a stream of Arrow. What decides is pure; `source` and `session` alone import pyspark."""
