"""The pages of the Python reference, from signatures and docstrings. `generate.py` writes them."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from typing import Any

LINE = 96

MODULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "suiro.streams": ("Topologies: streams, tables, windows, joins, stores.", ()),
    "suiro.testing": ("Tests: a topology without a broker, and a node as a fixture.", ()),
    "suiro.node": ("A node in this process, or as a child of it.", ("NodeProcess", "InProcessNode", "serve")),
    "suiro.client": ("A client for programs on threads: admin, fetch, produce, transactions.", ()),
    "suiro.spark": (
        'Format "suiro", and functions for it.',
        (
            "spark_session",
            "register",
            "exactly_once",
            "adopt",
            "from_avro",
            "to_avro",
            "query_metrics",
            "serve_metrics",
            "find_java",
        ),
    ),
    "suiro.registry": (
        "The schema registry's clients, and a registry for tests.",
        (
            "RegistryClient",
            "AsyncRegistryClient",
            "registry_client",
            "RegisteredSchema",
            "Reference",
            "Schema",
            "SchemaType",
            "InProcessRegistry",
            "RegistryProcess",
            "RegistryConfig",
        ),
    ),
    "suiro.views": (
        "Views: their definition, and reading them.",
        ("view", "ViewDefinition", "Views", "AsyncViews", "guards_of", "steps_of"),
    ),
    "suiro.errors": ("The exceptions that suiro raises.", ()),
}
"""What each is about, and the names of it that users need; none: all that are public."""


def pages() -> dict[str, Callable[[], str]]:
    made: dict[str, Callable[[], str]] = {"python/README.md": index}
    for module in MODULES:
        made[f"python/{module.partition('.')[2]}.md"] = partial(page, module)
    return made


def index() -> str:
    lines = ["# Python", "", "The public names, module by module; made from their docstrings.", ""]
    lines += [f"- [{name}]({name.partition('.')[2]}.md): {about}" for name, (about, _) in MODULES.items()]
    return "\n".join(lines) + "\n"


def page(name: str) -> str:
    about, chosen = MODULES[name]
    module = import_module(name)
    public = getattr(module, "__all__", None) or [
        at for at, value in vars(module).items() if _is_own(value, name) and not at.startswith("_")
    ]
    lines = [f"# {name}", "", about, ""]
    for at in chosen or sorted(public, key=str.lower):
        lines += _entry(at, getattr(module, at))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).rstrip() + "\n"


def _is_own(value: Any, module: str) -> bool:
    return getattr(value, "__module__", None) == module and (inspect.isclass(value) or callable(value))


def _entry(name: str, value: Any) -> Iterator[str]:
    yield from (f"## {name}", "")
    if inspect.isclass(value):
        yield from _class(name, value)
    elif inspect.isroutine(value):
        yield from _code(_signature(name, value))
        yield from _text(value)
    elif inspect.ismodule(value):
        yield from _text(value)
        for at in getattr(value, "__all__", ()):
            inner = getattr(value, at)
            if inspect.isroutine(inner):
                yield from (f"### {name}.{at}", "", *_code(_signature(at, inner)), *_text(inner))
    else:
        documented = type(value).__module__.startswith("suiro.")
        yield from _text(type(value)) if documented else (f"`{value!r}`", "")


def _class(name: str, value: Any) -> Iterator[str]:
    if issubclass(value, enum.Enum):
        yield from _text(value)
        yield from ("One of " + ", ".join(f"`{item.name}`" for item in value) + ".", "")
        return
    if not issubclass(value, BaseException):
        yield from _code(_signature(name, value))
    yield from _text(value)
    for at, member in inspect.getmembers_static(value):
        if at.startswith("_") or not _is_ours(value, at):
            continue
        if isinstance(member, property):
            if member.__doc__:
                yield from (f"### {name}.{at}", "", *_text(member.fget))
        elif isinstance(member, classmethod | staticmethod) or inspect.isfunction(member):
            function = getattr(value, at)
            if inspect.getdoc(function):
                yield from (f"### {name}.{at}", "", *_code(_signature(at, function)), *_text(function))


def _is_ours(value: type, name: str) -> bool:
    home = next(one for one in value.__mro__ if name in vars(one))
    return home.__module__.startswith("suiro.")


def _signature(name: str, value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return f"{name}(...)"
    shown = [_parameter(one) for one in signature.parameters.values() if one.name != "self"]
    kinds = [one.kind for one in signature.parameters.values() if one.name != "self"]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    given = signature.return_annotation
    gives = "" if given is inspect.Signature.empty or inspect.isclass(value) else f" -> {_type(given)}"
    is_async = "async " if inspect.iscoroutinefunction(value) else ""
    line = f"{is_async}{name}({', '.join(shown)}){gives}"
    if len(line) <= LINE:
        return line
    return "\n".join([f"{is_async}{name}(", *(f"    {one}," for one in shown), f"){gives}"])


def _parameter(one: inspect.Parameter) -> str:
    mark = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(one.kind, "")
    text = mark + one.name
    if one.annotation is not inspect.Parameter.empty:
        text += f": {_type(one.annotation)}"
    if one.default is not inspect.Parameter.empty:
        default = _default(one.default)
        text += f" = {default}" if ":" in text else f"={default}"
    return text


def _default(value: Any) -> str:
    if value is dataclasses.MISSING or type(value).__name__ == "_HAS_DEFAULT_FACTORY_CLASS":
        return "..."
    text = repr(value)
    return "..." if " at 0x" in text or text.startswith("<") else text


def _type(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:suiro|collections|pathlib|typing)(?:\.\w+)*\.(?=\w)", "", text)


def _code(text: str) -> Iterator[str]:
    yield from ("```text", text, "```", "")


def _text(value: Any) -> Iterator[str]:
    """A docstring as Markdown: examples of doctests are code."""
    doc = inspect.getdoc(value) or ""
    if dataclasses.is_dataclass(value) and doc.startswith(f"{getattr(value, '__name__', '')}("):
        return  # made by dataclass itself
    is_code = False
    for line in doc.splitlines():
        starts = line.startswith((">>>", "..."))
        if starts and not is_code:
            is_code = True
            yield "```text"
        elif is_code and not line.strip():
            is_code = False
            yield "```"
        yield line
    if is_code:
        yield "```"
    yield ""
