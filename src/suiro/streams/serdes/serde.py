"""The interface of a serde, for one value and for an Arrow column, and the errors that serdes raise.

`Serde` is all a user has to write. `ColumnarSerde` is the optional fast way: the same bytes and the same
values, a column at a time. Null is never given to a serde; in a column it stays null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from suiro.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa


@runtime_checkable
class Serde(Protocol):
    """Turns values into bytes and back. `topic` is where they go to or come from; most serdes only name it in errors.

    Must be picklable, because Spark sends it to its workers, and should compare by value.
    """

    @property
    def name(self) -> str: ...

    def serialize(self, topic: str, value: Any) -> bytes:
        """The bytes of a value that is not None. Raises SerializationError."""
        ...

    def deserialize(self, topic: str, data: bytes) -> Any:
        """The value of these bytes. Raises DeserializationError."""
        ...


@runtime_checkable
class ColumnarSerde(Serde, Protocol):
    """A serde that also handles Arrow columns, and there gives exactly what it gives value by value."""

    def decode_column(self, data: pa.Array, *, topic: str = ...) -> pa.Array:
        """`data` is binary. Raises DeserializationError, whose `row` is the first bad one's index.

        Raises NotColumnarError where no Arrow type holds what `deserialize` gives: read row by row then.
        """
        ...

    def encode_column(self, values: pa.Array, *, topic: str = ...) -> pa.Array:
        """A binary array. Raises SerializationError."""
        ...


class SerializationError(UsageError):
    """A value cannot be written by the serde that was given for it."""

    def __init__(self, serde: str, topic: str, type_name: str, reason: str) -> None:
        super().__init__(serde, topic, type_name, reason)
        self.serde = serde
        self.topic = topic
        self.type_name = type_name
        self.reason = reason

    def __str__(self) -> str:
        where = f" for topic {self.topic!r}" if self.topic else ""
        return f"serde {self.serde!r} cannot write a value of type {self.type_name}{where}: {self.reason}"


class DeserializationError(UsageError):
    """Bytes of a topic are not what its serde writes. `row` is set when a column was read."""

    def __init__(self, serde: str, topic: str, reason: str, row: int | None = None) -> None:
        super().__init__(serde, topic, reason, row)
        self.serde = serde
        self.topic = topic
        self.reason = reason
        self.row = row

    def __str__(self) -> str:
        where = f" of topic {self.topic!r}" if self.topic else ""
        row = "" if self.row is None else f" (row {self.row} of the column)"
        return (
            f"serde {self.serde!r} cannot read data{where}{row}: {self.reason}; "
            "give the serde that the data was written with"
        )


class NotColumnarError(UsageError):
    """The data is sound, but its values have no common Arrow type; read them one by one."""

    def __init__(self, serde: str, topic: str, reason: str) -> None:
        super().__init__(serde, topic, reason)
        self.serde = serde
        self.topic = topic
        self.reason = reason

    def __str__(self) -> str:
        return f"serde {self.serde!r} cannot read topic {self.topic!r} as one column: {self.reason}"
