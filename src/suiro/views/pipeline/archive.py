"""The code of a version: a zip of the user's file and of the modules next to it that it imports. So version 1 keeps its
own code when the file changes.

Equal code gives equal bytes. The import statements, at any depth of the code, name the modules; a package is taken
whole. Installed packages are not in the archive: they belong to the environment.

A version's pipeline is a process of its own, and imports the unpacked files as any program does. For two versions in
one process (explain), `Code.load` gives the modules of each a package of their own.
"""

from __future__ import annotations

import ast
import builtins
import hashlib
import io
import sys
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import resolve_name
from pathlib import Path, PurePosixPath
from types import CodeType, ModuleType
from typing import Any

from suiro.errors import UsageError
from suiro.views.definition import ViewDefinition

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can say
MAX_FILES_BYTES = 64 * 1024 * 1024
_FILE_MODE = 0o644 << 16


def code_id(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def archive_of(path: Path) -> bytes:
    """`path`: the user's file. Raises `UsageError` if it cannot be read, is not Python, or has the name of a module of
    the standard library."""
    path = path.resolve()
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file")
    _check_name(path.name)
    return _zipped(_reached(path))


def archive_of_files(files: Mapping[str, str]) -> bytes:
    """`files`: by name, as if in one folder. Takes all of them. Raises `UsageError`."""
    for name in files:
        if PurePosixPath(name).name != name or not name.endswith(".py"):
            raise UsageError(f"{name[:200]!r} is not a Python file: choose files whose names end with .py")
        _check_name(name)
    return _zipped({name: text.encode("utf-8", "surrogatepass") for name, text in files.items()})


def _check_name(name: str) -> None:
    stem = name.removesuffix(".py")
    if stem in sys.stdlib_module_names or not stem.isidentifier():
        raise UsageError(
            f"{name} cannot be imported under this name (it is not an identifier, or a module of Python's own); "
            "give the file another name"
        )


def _zipped(files: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            entry = zipfile.ZipInfo(name, date_time=_EPOCH)
            entry.external_attr = _FILE_MODE
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, files[name])
    return out.getvalue()


def _reached(path: Path) -> dict[str, bytes]:
    """Returns the file, and every module next to it that imports lead to: names in the archive, and contents."""
    root = path.parent
    found: dict[str, bytes] = {}
    pending = [path]
    while pending:
        file = pending.pop()
        name = file.relative_to(root).as_posix()
        if name in found:
            continue
        try:
            found[name] = content = file.read_bytes()
            tree = ast.parse(content, filename=str(file))
        except (OSError, SyntaxError, ValueError) as error:
            if file.parent != root:
                continue  # a file of a package that nobody needs to import
            raise UsageError(f"{file} cannot be taken into the version's code: {error}") from None
        for top in _imported(tree):
            if (root / f"{top}.py").is_file():
                pending.append(root / f"{top}.py")
            elif top != "suiro" and (root / top).is_dir():
                pending += sorted((root / top).rglob("*.py"))
    return found


def _imported(tree: ast.AST) -> Iterator[str]:
    """Yields the first part of every absolute import. Relative imports stay in their package, which is taken whole."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


class Code:
    """An archive. Raises `UsageError` for other bytes."""

    def __init__(self, data: bytes) -> None:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                size = sum(item.file_size for item in archive.infolist())
                if size > MAX_FILES_BYTES:  # zipfile reads no more of a file than its `file_size`
                    raise UsageError(
                        f"the archive of a version's code holds {size:,} bytes, and at most {MAX_FILES_BYTES:,} are "
                        "taken: keep large files out of the folder that it imports from"
                    )
                self.files: Mapping[str, bytes] = {item: archive.read(item) for item in archive.namelist()}
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
            raise UsageError(f"this is not the archive of a version's code: {error}; deploy it again") from None
        for name in self.files:
            parts = PurePosixPath(name)
            if parts.is_absolute() or ".." in parts.parts or parts.suffix != ".py":
                raise UsageError(f"the archive of a version's code holds {name!r}, which is no module of it")
        self.id = code_id(data)

    def unpack(self, folder: Path) -> None:
        """Writes the files for a process that imports them. Files with the same content stay as they are."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)

    def load(self, entry: str) -> ViewDefinition:
        """Returns the view of `entry` ("app.py:function"). Its modules are in a package of their own."""
        file, _ = split_entry(entry)
        package = f"suiro_view_{self.id[:16]}"
        if not any(isinstance(item, _Modules) and item.package == package for item in sys.meta_path):
            sys.meta_path.append(_Modules(package, self.files))
        return definition_in(import_module(f"{package}.{file.removesuffix('.py')}"), entry)


def split_entry(entry: str) -> tuple[str, str]:
    file, colon, function = entry.rpartition(":")
    if not colon or not file.endswith(".py") or not function.isidentifier():
        raise UsageError(f"{entry!r}: expected APP.PY:FUNCTION, a file and the function in it that has @view")
    return file, function


def definition_in(module: ModuleType, entry: str) -> ViewDefinition:
    file, function = split_entry(entry)
    found = getattr(getattr(module, function, None), "definition", None)
    if isinstance(found, ViewDefinition):
        return found
    names = [
        name for name, item in vars(module).items() if isinstance(getattr(item, "definition", None), ViewDefinition)
    ]
    has = f"it has {', '.join(sorted(names))}" if names else "it has none: put @view(...) above a function"
    raise UsageError(f"{file} has no view {function!r}; {has}")


class _Modules(MetaPathFinder, InspectLoader):
    """Finds and loads an archive's modules in a package of their own. In these modules, `import helpers` imports the
    package's `helpers`. All other imports are the usual ones."""

    def __init__(self, package: str, files: Mapping[str, bytes]) -> None:
        self.package = package
        self._files = files
        self._tops = {PurePosixPath(name).parts[0].removesuffix(".py") for name in files}
        self._builtins = {**vars(builtins), "__import__": self._import}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self.package:
            return ModuleSpec(fullname, self, is_package=True)
        name = self._file(fullname)
        if name is None:
            return None
        spec = ModuleSpec(fullname, self, origin=name, is_package=self.is_package(fullname))
        spec.has_location = True  # `__file__`, as tracebacks show it
        return spec

    def is_package(self, fullname: str) -> bool:
        name = self._file(fullname)
        return name is None or name.endswith("__init__.py") or name not in self._files

    def get_source(self, fullname: str) -> str:
        name = self._file(fullname)
        return self._files.get(name or "", b"").decode()

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_source(fullname), self._file(fullname) or fullname)

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["__builtins__"] = self._builtins
        super().exec_module(module)

    def _file(self, fullname: str) -> str | None:
        """Returns the file of a module. Of a folder without __init__.py, which is a package too, it is the folder."""
        if not fullname.startswith(f"{self.package}."):
            return None
        place = fullname[len(self.package) + 1 :].replace(".", "/")
        for name in (f"{place}.py", f"{place}/__init__.py"):
            if name in self._files:
                return name
        return place if any(name.startswith(f"{place}/") for name in self._files) else None

    def _import(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Sequence[str] = (),
        level: int = 0,
    ) -> ModuleType:
        if level:
            assert globals is not None
            absolute = resolve_name("." * level + name, str(globals["__package__"]))
        elif name.partition(".")[0] in self._tops:
            absolute = f"{self.package}.{name}"
        else:
            return builtins.__import__(name, globals, locals, fromlist, level)
        module = import_module(absolute)
        if not fromlist:  # `import a.b` gives a
            return sys.modules[f"{self.package}.{name.partition('.')[0]}"] if name else module
        for item in fromlist:
            if not hasattr(module, item) and self._file(f"{absolute}.{item}") is not None:
                import_module(f"{absolute}.{item}")
        return module
