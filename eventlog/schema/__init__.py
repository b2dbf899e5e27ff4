"""Schemas: what they are, which of them read what others wrote, and the rules of a registry of them. Pure.

`avro` is what values of a cache are decoded with. `avro_types` and `json_types` read a schema strictly, `avro_reading` and `json_reading`
say why one cannot read what another wrote. `registry` is what a registry holds, folded from the records that its cache keeps,
and `requests` decides what is answered and which records are written. `strict_json` and `avro_fit` make of objects what JSON and a schema
take, and name the place where one does not fit.
"""
