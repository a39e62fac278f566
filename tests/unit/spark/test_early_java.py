"""Java is started before it is needed, and nobody is left with one that was not."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
from support.waiting import wait_until

from suiro.spark import early_java
from suiro.spark.early_java import started_early, take

SETTINGS = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": '-Da="b c"'}
JAVA = """#!{python}
import json, os, sys
told = json.dumps([os.getpid(), sys.argv[1:], os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"], os.environ.get("GIVEN")])
open({told!r} + ".part", "w").write(told)
os.rename({told!r} + ".part", {told!r})
sys.stdin.read()
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A Spark whose Java says how it was started, and waits."""
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.write_text(JAVA.format(python=sys.executable, told=str(tmp_path / "told")))
    script.chmod(0o755)
    monkeypatch.setattr(early_java, "_is_first", lambda: True)  # this process may have a Java of other tests
    yield tmp_path
    assert early_java._waiting == []


def environment(home: Path) -> dict[str, str]:
    return {**os.environ, "SPARK_HOME": str(home), "GIVEN": "1"}


def told(home: Path) -> tuple[int, list[str], Path, str]:
    wait_until(lambda: (home / "told").exists())
    pid, arguments, connection, given = json.loads((home / "told").read_text())
    return pid, arguments, Path(connection), given


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_it_is_started_as_pyspark_starts_it(home: Path) -> None:
    with started_early(SETTINGS, environment(home)):
        _, arguments, connection, given = told(home)
        confs = [item for name, value in SETTINGS.items() for item in ("--conf", f"{name}={value}")]
        assert arguments == [*confs, "pyspark-shell"]
        assert given == "1"
        assert connection.parent.is_dir()


def test_secrets_are_in_a_file_and_not_in_the_command_line(home: Path) -> None:
    """Anybody may see the command lines of all processes."""
    settings = SETTINGS | {
        "spark.hadoop.fs.s3a.secret.key": "a\\b =c",
        "spark.ssl.keyPassword": "word",
        "spark.a.token": 5,
    }
    with started_early(settings, environment(home)):
        _, arguments, _, _ = told(home)
        assert not any("secret.key" in item or "word" in item for item in arguments)
        path = Path(arguments[arguments.index("--properties-file") + 1])
        assert "--load-spark-defaults" in arguments, "or those of conf/spark-defaults.conf are passed over"
        assert (
            path.read_text()
            == "spark.hadoop.fs.s3a.secret.key=a\\\\b =c\nspark.ssl.keyPassword=word\nspark.a.token=5\n"
        )
        assert path.parent.stat().st_mode & 0o077 == 0
    assert not path.exists()


def test_with_secrets_java_is_not_left_to_pyspark(home: Path) -> None:
    (home / "bin" / "spark-submit").write_text(f"#!/bin/sh\necho $@ > {home / 'told'}\n")
    take(SETTINGS | {"spark.hadoop.fs.s3a.access.key": "k"}, environment(home))
    assert "access.key" not in (home / "told").read_text()


def test_one_that_nobody_took_ends(home: Path) -> None:
    with suppress(LookupError), started_early(SETTINGS, environment(home)):
        pid, _, connection, _ = told(home)
        assert not has_ended(pid)
        raise LookupError
    assert has_ended(pid)
    assert not connection.parent.exists()


@pytest.mark.parametrize(
    ("settings", "more"),
    [(SETTINGS | {"spark.driver.memory": "4g"}, {}), (SETTINGS, {"GIVEN": "2"})],
    ids=["other settings", "another environment"],
)
def test_one_that_is_not_what_is_wanted_ends(home: Path, settings: Mapping[str, str], more: Mapping[str, str]) -> None:
    with started_early(SETTINGS, environment(home)):
        pid, _, connection, _ = told(home)
        take(settings, environment(home) | dict(more))
        assert has_ended(pid)
        assert not connection.parent.exists()


def test_one_that_ended_by_itself_is_not_waited_for(home: Path) -> None:
    (home / "bin" / "spark-submit").write_text("#!/bin/sh\nexit 1\n")
    with started_early(SETTINGS, environment(home)):
        take(SETTINGS, environment(home))


def test_where_spark_is_not_found_none_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_java, "_is_first", lambda: True)
    with started_early(SETTINGS, {"SPARK_HOME": str(tmp_path)}):
        assert early_java._waiting == []
        take(SETTINGS, {"SPARK_HOME": str(tmp_path)})


def test_beside_a_java_of_this_process_none_is_started(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(early_java, "_is_first", lambda: False)
    with started_early(SETTINGS, environment(home)):
        assert early_java._waiting == []
