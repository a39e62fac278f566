"""Bytes <-> values of the Kafka protocol, without I/O.

Entered by module, not through this file: `columnar` imports numba and pyarrow (140 MB), which the node never
needs, and `messages` imports kio, which Spark's encoding tasks never need.

- `messages`: request and response classes by (api key, version), headers, frames.
- `record_batch`: the 61-byte header of record batch v2, CRC, in-place patches.
- `records`: one record at a time, plain Python: small system topics, and the reference for `columnar`.
- `columnar`: record batches <-> Arrow columns, compiled.
- `compression`, `murmur2`, `crc32c`: what their names say.
"""
