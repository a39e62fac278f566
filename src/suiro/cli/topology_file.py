"""Loads a Python file with a topology: `topology = ...` or `def build(builder)`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import TracebackException, walk_tb
from types import ModuleType
from typing import TYPE_CHECKING

from suiro.errors import ConfigError, SuiroError

if TYPE_CHECKING:
    from suiro.streams import Topology


class UserCodeError(Exception):
    """An error of the code in the file. The text has the lines of the file, not those of suiro."""

    def __init__(self, path: Path, error: BaseException) -> None:
        shown = TracebackException.from_exception(error)
        own = (place for place, frame in enumerate(shown.stack) if Path(frame.filename) == path.resolve())
        del shown.stack[: next(own, len(shown.stack))]
        super().__init__("".join(shown.format(chain=False)) + f"suiro: {path} could not be loaded")


def load_topology(path: Path) -> tuple[ModuleType, Topology]:
    """Returns the file as a module, and its topology. Raises `SuiroError`, with the line of the file, and
    `UserCodeError` for errors of the file."""
    try:
        module = load_module(path)
        return module, topology_of(module)
    except SuiroError as error:
        calls = ((frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__))
        if lines := [line for file, line in calls if Path(file) == path.resolve()]:
            error.args = (f"{path.name}, line {lines[-1]}: {error}",)
        raise
    except Exception as error:
        raise UserCodeError(path, error) from error


@contextmanager
def forgotten() -> Iterator[None]:
    """Forgets the modules loaded inside the `with`, so that another version of the file and its neighbours can be
    loaded."""
    before, path = set(sys.modules), list(sys.path)
    try:
        yield
    finally:
        folders = [item for item in sys.path if item not in path]
        sys.path[:] = path
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and any(Path(file).is_relative_to(folder) for folder in folders):
                del sys.modules[name]


def load_module(path: Path) -> ModuleType:
    """Runs the file as a module with its own name. Modules next to it can be imported, here and in workers."""
    path = path.resolve()
    if path.stem in sys.modules:
        raise ConfigError(
            f"{path.name} has the name of a module that is loaded already ({path.stem}); give the file another name"
        )
    sys.path.insert(0, str(path.parent))
    spec = spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{path} is not a Python file; its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def topology_of(module: ModuleType) -> Topology:
    from suiro.streams import StreamsBuilder, Topology

    found = getattr(module, "topology", None)
    if isinstance(found, Topology):
        return found
    if isinstance(found, StreamsBuilder):
        return found.build()
    build = getattr(module, "build", None)
    if not callable(build):
        raise ConfigError(
            f"{module.__name__} has neither a topology (topology = builder.build()) nor a function build(builder)"
        )
    builder = StreamsBuilder()
    made = build(builder)
    return made if isinstance(made, Topology) else builder.build()
