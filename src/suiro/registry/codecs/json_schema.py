"""JSON with a schema: values are those of `json`, and each value is validated when it is read and written.

A value is validated with the given schema, otherwise with the one it was written with (`validate=False`: with none).
The bytes are JSON as `serdes.json` writes it: UTF-8, sorted members, so that equal values have equal bytes.
"""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any

from suiro.registry.codecs.wire import PREFIX, BySchema, CodecSettings, Undecodable, Unencodable, WireFormat
from suiro.registry.formats import Budget, TooComplex, parse
from suiro.registry.formats.json_format import READER, validator
from suiro.registry.formats.json_values import Validator
from suiro.registry.schemas import JSON, Schema

STEPS_OF_A_VALUE = 200_000
STEPS_OF_A_BYTE = 100
"""The steps for validating one value. The writer of a record may also write its schema, and must not be able to stop
readers by an expensive one."""


_WRITER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


class JsonSchemaCodec:
    def __init__(self, settings: CodecSettings) -> None:
        self._wire = WireFormat(JSON, settings)
        self._of_writer = BySchema(self._wire, lambda schema, imports: validator(schema.text, imports))
        self._written: dict[int, Validator] = {}

    def decode(self, data: bytes) -> Any:
        schema_id = self._wire.split(data)
        settings = self._wire.settings
        found = self._of_writer(schema_id)  # also if another schema validates: an unknown id is an error
        try:
            value = READER.decode(data[PREFIX.size :].decode())
        except (ValueError, RecursionError) as error:
            raise Undecodable(f"not JSON: {error}") from None
        if settings.validate:
            if settings.schema is not None:
                found = self._given
            which = "the reader's schema" if settings.schema is not None else f"schema {schema_id}"
            if problem := _problem(found, value, len(data), which):
                raise Undecodable(problem)
        return value

    def schema_of(self, data: bytes) -> str:
        """Returns the text of the writer's schema. Raises `Undecodable`."""
        return self._wire.schema(self._wire.split(data)).text

    def encode(self, topic: str, value: Any) -> bytes:
        schema_id, schema = self._wire.to_write(topic, self._title)
        found = self._written.get(schema_id)
        if found is None:
            found = self._written[schema_id] = self._validator(schema)
        try:
            body = _WRITER.encode(value).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise Unencodable(f"JSON has no form for it: {error}") from None
        which = f"its schema (id {schema_id})"
        if self._wire.settings.validate and (problem := _problem(found, value, len(body), which)):
            raise Unencodable(problem)
        return PREFIX.pack(0, schema_id) + body

    def check(self, topic: str | None) -> None:
        if self._wire.settings.schema is not None:
            self._validator(self._wire.settings.schema)
        self._wire.check(topic, self._title)

    @cached_property
    def _given(self) -> Validator:
        assert self._wire.settings.schema is not None
        return self._validator(self._wire.settings.schema)

    def _validator(self, schema: Schema) -> Validator:
        return validator(schema.text, self._wire.imports(schema))

    @cached_property
    def _title(self) -> str | None:
        """Of the given schema."""
        given = self._wire.settings.schema
        if given is None:
            return None
        loaded = json.loads(parse(JSON, given.text, self._wire.imports(given), strict=False).canonical)
        title = loaded.get("title") if isinstance(loaded, dict) else None
        return title if isinstance(title, str) else None


def _problem(validator: Validator, value: Any, size: int, which: str) -> str | None:
    """Returns why a value of so many bytes is refused. `which` names the schema."""
    try:
        problem = validator.problem(value, Budget(STEPS_OF_A_VALUE + STEPS_OF_A_BYTE * size))
    except TooComplex as error:
        return f"it cannot be validated by {which}: {error}"
    return None if problem is None else f"it is not valid by {which}: {problem}"
