"""Compiled loops of the capture, without a Python object per value. Only `engine` imports this package.

- `offsets`: where pgoutput's messages, COPY's rows and their values are.
- `rows`: whole rows to keys and values; `values`, `numbers`: one value. `header_values`: headers of records.
- `wire`: primitives that all of them read and write.

A kernel never reads or writes outside the arrays it is given, whatever the bytes are. A kernel does not validate
values: it lists a value that it cannot write as hard, and the plain rule of `avro_text` writes it or raises the error.
The plain rules define the result; a kernel is only faster.

As in `protocol.kernels`, every signature is declared, so that nothing is compiled while changes flow. A kernel may
inline functions of other modules of this package: see `protocol.compiling`.
"""

from suiro.connect.postgres.encoding.kernels.header_values import live_header_values
from suiro.connect.postgres.encoding.kernels.offsets import copy_rows, parse, peeked_changes
from suiro.connect.postgres.encoding.kernels.rows import encode_rows
from suiro.connect.postgres.encoding.kernels.values import CODES, MAX_DECIMAL_DIGITS, MAX_GROWTH, PYTHON
from suiro.connect.postgres.encoding.kernels.wire import FULL, OK, UNCHANGED_TOAST

__all__ = [
    "CODES",
    "FULL",
    "MAX_DECIMAL_DIGITS",
    "MAX_GROWTH",
    "OK",
    "PYTHON",
    "UNCHANGED_TOAST",
    "copy_rows",
    "encode_rows",
    "live_header_values",
    "parse",
    "peeked_changes",
]
