"""The compiled loops of the capture: no Python object per value. `engine` imports this package, and nobody else does.

- `messages`, `copying`: where messages of pgoutput and rows of COPY stand. `tuples`: where their values do.
- `rows`: whole rows to keys and values; `values`, `numbers`, `times`: one value. `header_values`: headers of records.
- `wire`: what all of them read and write.

Always true: no kernel reads or writes outside the arrays it is given, whatever the bytes say. A kernel never judges a
value: what it does not know how to write it lists as hard, and the plain rule of `avro_text` writes it or says what is
wrong with it. So the plain rules are the law, and a kernel can only be faster.

As in `protocol.kernels`, every signature is written out, so that nothing compiles in the middle of a stream. What one
kernel inlines may stand in another file of this folder: see `protocol.compiling`.
"""

from suiro.connect.postgres.encoding.kernels.copying import copy_fields, copy_rows, peeked_changes
from suiro.connect.postgres.encoding.kernels.header_values import live_header_values
from suiro.connect.postgres.encoding.kernels.messages import parse
from suiro.connect.postgres.encoding.kernels.numbers import powers_of_five
from suiro.connect.postgres.encoding.kernels.rows import encode_rows
from suiro.connect.postgres.encoding.kernels.tuples import find_columns
from suiro.connect.postgres.encoding.kernels.values import CODES, MAX_DECIMAL_DIGITS, MAX_GROWTH, PYTHON
from suiro.connect.postgres.encoding.kernels.wire import BAD_ROW, FULL, OK

__all__ = [
    "BAD_ROW",
    "CODES",
    "FULL",
    "MAX_DECIMAL_DIGITS",
    "MAX_GROWTH",
    "OK",
    "PYTHON",
    "copy_fields",
    "copy_rows",
    "encode_rows",
    "find_columns",
    "live_header_values",
    "parse",
    "peeked_changes",
    "powers_of_five",
]
