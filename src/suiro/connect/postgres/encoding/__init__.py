"""Bytes of pgoutput and of binary COPY to keys, values and headers of records. No I/O."""
