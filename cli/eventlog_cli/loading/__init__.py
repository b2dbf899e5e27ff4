"""Files into caches: a source of plain bytes, one reader a format that makes rows of them, and a loader that writes the rows.

`source` opens, decompresses and chooses a reader, `rows` says what a row must have, `lines`, `parquet` and `avro` read, `loader` writes in
order and counts.
"""
