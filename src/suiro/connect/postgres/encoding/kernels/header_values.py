"""Values of the headers of live records: the kernel of `headers.live_headers`."""

from __future__ import annotations

import numpy as np

from suiro.connect.postgres.encoding.kernels.wire import DAY
from suiro.protocol.compiling import BYTES_IN, BYTES_OUT, INT32S_OUT, INT64S_IN, compiled, copy_bytes, inlined

TIME_SIZE = 27
MAX_XID_SIZE = 10
_FIRST_US = -62_135_596_800_000_000  # of the year 1, and behind the last of 9999
_LAST_US = 253_402_300_800_000_000


@inlined
def _put_digits(out, at, number, count):
    for place in range(at + count - 1, at - 1, -1):
        out[place] = np.uint8(48 + number % 10)
        number //= 10


@inlined
def _put_time(out, at, us):
    """`2026-11-21T22:54:19.753692Z`; the civil calendar by Hinnant's algorithm."""
    days = us // DAY
    rest = us - days * DAY
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year_of_era = (of_era - of_era // 1_460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    year = year_of_era + era * 400
    if month <= 2:
        year += 1
    seconds = rest // 1_000_000
    _put_digits(out, at, year, 4)
    _put_digits(out, at + 5, month, 2)
    _put_digits(out, at + 8, day, 2)
    _put_digits(out, at + 11, seconds // 3600, 2)
    _put_digits(out, at + 14, seconds // 60 % 60, 2)
    _put_digits(out, at + 17, seconds % 60, 2)
    _put_digits(out, at + 20, rest % 1_000_000, 6)
    out[at + 4] = out[at + 7] = 45  # -
    out[at + 10] = 84  # T
    out[at + 13] = out[at + 16] = 58  # :
    out[at + 19] = 46  # .
    out[at + 26] = 90  # Z


@compiled(
    INT64S_IN, INT64S_IN, INT64S_IN, INT64S_IN, INT64S_IN,
    BYTES_IN, INT64S_IN, BYTES_IN, INT32S_OUT, BYTES_OUT,
)  # fmt: skip
def live_header_values(
    lsns, transactions, operations, xids, commit_us,
    names, name_places, last, offsets, out,
):  # fmt: skip
    """Writes lsn, xid, commit_time, op and origin of each record one after the other, and their ends to `offsets`.

    The name of operation i is names[name_places[i]:name_places[i + 1]]; `last` is the origin. Returns how many bytes
    were written, or -1 where a time has no year of four digits. `out` has room for the largest outcome.
    """
    text = np.empty(MAX_XID_SIZE + TIME_SIZE, np.uint8)
    digits = np.int64(0)
    known = np.int64(-1)
    at = np.int64(0)
    cell = np.int64(0)
    offsets[0] = 0
    for row in range(len(lsns)):
        transaction = transactions[row]
        if transaction != known:
            known = transaction
            us = commit_us[transaction]
            if us < _FIRST_US or us >= _LAST_US:
                return np.int64(-1)
            xid = xids[transaction]
            digits = np.int64(1)
            power = np.int64(10)
            while xid >= power:
                digits += 1
                power *= 10
            _put_digits(text, np.int64(0), xid, digits)
            _put_time(text, digits, us)
        lsn = np.uint64(lsns[row])
        for place in range(16):
            nibble = np.uint8((lsn >> np.uint64(60 - 4 * place)) & np.uint64(15))
            out[at + place + (1 if place >= 8 else 0)] = nibble + 48 if nibble < 10 else nibble + 55
        out[at + 8] = 47  # /
        at += 17
        offsets[cell + 1] = at
        copy_bytes(out, at, text, np.int64(0), digits + TIME_SIZE)
        offsets[cell + 2] = at + digits
        at += digits + TIME_SIZE
        offsets[cell + 3] = at
        start = name_places[operations[row]]
        size = name_places[operations[row] + 1] - start
        copy_bytes(out, at, names, start, size)
        at += size
        offsets[cell + 4] = at
        copy_bytes(out, at, last, np.int64(0), np.int64(len(last)))
        at += len(last)
        offsets[cell + 5] = at
        cell += 5
    return at
