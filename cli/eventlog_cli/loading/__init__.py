"""Files into caches: a source of plain bytes, one reader a format that makes rows of them, and a loader that writes the rows.

`source` opens and decompresses, `rows` says what a row must have, `jsonl`, `delimited`, `parquet` and `avro` read, `formats` chooses
among them, `loader` writes in order and counts.
"""
