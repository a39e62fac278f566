"""A key is found however its value is spelled, and keys that Kafka tells apart are told apart."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from suiro.errors import UsageError
from suiro.views.control.isolated import _as_in_stores
from suiro.views.store.keys import key_of, key_of_values, parts_of, place_of

TEXT, WHOLE, NUMBER = frozenset({"string"}), frozenset({"integer"}), frozenset({"number"})


@pytest.mark.parametrize(
    ("path", "types", "key"),
    [
        ("7", WHOLE, 7),
        ("7.0", WHOLE, 7),
        ("70e-1", WHOLE, 7),
        ("-0.0", WHOLE, 0),
        ("7", NUMBER, 7.0),
        ("7.0", NUMBER, 7.0),
        ("0.7e1", NUMBER, 7.0),
        ("7", WHOLE | NUMBER, 7),
        ("7.0", WHOLE | NUMBER, 7.0),
        ("7", TEXT, "7"),
        ("7", TEXT | WHOLE, 7),
        ("%227%22", TEXT | WHOLE, "7"),
        ("%22%5Cu0061%22", TEXT | WHOLE, "a"),
        ("a", TEXT | WHOLE, "a"),
        ("%61", TEXT, "a"),
        ("null", TEXT | {"null"}, None),
        ('{"b":1, "a":"\\u0061"}', frozenset({"nested"}), {"a": "a", "b": 1}),
    ],
)
def test_spellings(path: str, types: frozenset[str], key: Any) -> None:
    (found,) = key_of(parts_of(path), ("id",), (types,))
    assert (type(found), found) == (type(key), key)
    assert place_of([found]) == place_of([key])


@pytest.mark.parametrize(
    ("value", "types", "key"),
    [(7.0, WHOLE, 7), (7, NUMBER, 7.0), (True, frozenset({"boolean"}), True), ("7", WHOLE, 7)],
)
def test_values_from_json(value: Any, types: frozenset[str], key: Any) -> None:
    (found,) = key_of_values([value], ("id",), (types,))
    assert (type(found), found) == (type(key), key)


@pytest.mark.parametrize("path", ["7.5", "x", "true", "1e999"])
def test_what_is_no_such_value(path: str) -> None:
    with pytest.raises(UsageError, match="key column 'id' is of type integer, and"):
        key_of([path], ("id",), (WHOLE,))


def test_a_key_to_explain_is_what_it_is_in_either_store() -> None:
    """A row that only one version has tells the other one's nothing of its types."""
    old, new = (
        SimpleNamespace(spec=SimpleNamespace(key=("carrier", "day")), key_types=lambda types=types: types)  # type: ignore[misc]
        for types in ((frozenset(), frozenset()), (TEXT, WHOLE))
    )
    assert _as_in_stores([("UA", "7"), ("UA", 7.0)], old, new) == [("UA", 7), ("UA", 7)]
