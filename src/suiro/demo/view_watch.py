"""Asks the host of views how the view stands, again and again, for the screen and for what the story waits for."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suiro.demo.names import VIEW
from suiro.errors import SuiroError
from suiro.views import Views

__all__ = ["Reading", "VersionState", "ViewState", "ViewWatch"]

ASK_EVERY_S = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionState:
    """`share`: of the callers, 0 to 1. `left_s`: until all is read, at this rate. `lag_ms`: behind the serving one."""

    number: int
    state: str
    share: float
    done: int = 0
    total: int = 0
    rate: float = 0.0
    left_s: float | None = None
    lag_ms: int | None = None
    input_lag_ms: int | None = None
    cut: int | None = None
    pid: int | None = None
    restarts: int = 0
    error: str | None = None

    @classmethod
    def of(cls, said: Mapping[str, Any], routing: Mapping[str, Any]) -> VersionState:
        """Of one entry of `GET /views/V`."""
        number, share = said["version"], (routing["share"] or 0) / 10_000
        progress, pipeline = said.get("progress") or {}, said.get("pipeline") or {}
        return cls(
            number=number,
            state=said["state"],
            share=share
            if number == routing["candidate"]
            else 1 - share
            if number == routing["serving"]
            else 0.0,
            done=progress.get("done", 0),
            total=progress.get("total", 0),
            rate=progress.get("rate", 0.0),
            left_s=progress.get("left_s"),
            lag_ms=said.get("lag_ms"),
            input_lag_ms=said.get("input_lag_ms"),
            cut=said.get("cut"),
            pid=pipeline.get("pid"),
            restarts=pipeline.get("restarts", 0),
            error=said.get("error"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What the reader last said. `turns`: of each of its threads. `callers`: how many were last answered by each
    version; `last_s`: when each did."""

    reads: int = 0
    errors: int = 0
    p50_ms: float | None = None
    p99_ms: float | None = None
    turns: tuple[int, ...] = ()
    callers: Mapping[int, int]
    last_s: Mapping[int, float]

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Reading:
        return cls(
            reads=event["reads"],
            errors=event["errors"],
            p50_ms=event["p50_ms"],
            p99_ms=event["p99_ms"],
            turns=tuple(event["turns"]),
            callers={int(version): count for version, count in event["callers"].items()},
            last_s={int(version): at_s for version, at_s in event["last_s"].items()},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewState:
    """Versions that are not retired, and the reader where there is one."""

    versions: tuple[VersionState, ...] = ()
    reading: Reading | None = None

    def version(self, number: int) -> VersionState | None:
        return next((version for version in self.versions if version.number == number), None)


class ViewWatch:
    """From `start` to `stop`; nothing before the view is deployed, and what was last heard while the host is gone."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._versions: tuple[VersionState, ...] = ()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-view-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def versions(self) -> tuple[VersionState, ...]:
        return self._versions

    def _run(self) -> None:
        with Views(self._url) as views:
            while not self._ended.wait(ASK_EVERY_S):
                try:
                    said = views.status(VIEW)
                except SuiroError:
                    continue
                self._versions = tuple(
                    VersionState.of(version, said["routing"])
                    for version in said["versions"]
                    if version["state"] != "retired"
                )
