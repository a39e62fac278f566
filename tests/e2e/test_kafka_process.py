"""A real Apache Kafka is started although somebody takes its port between the choice and the start."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from suiro.kafka import process as kafka


@pytest.mark.kafka
@pytest.mark.soak  # ten seconds of CI's time for what is rare
def test_a_port_that_is_taken_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = kafka.free_ports
    with socket.socket() as rival:

        def taken_at_first(count: int) -> list[int]:
            ports = chosen(count)
            if rival.getsockname()[1] == 0:
                rival.bind(("127.0.0.1", ports[1]))
                rival.listen()
            return ports

        monkeypatch.setattr(kafka, "free_ports", taken_at_first)
        with kafka.KafkaProcess.start(tmp_path) as process:
            assert not process.bootstrap_servers.endswith(f":{rival.getsockname()[1]}")
            assert "Address already in use" not in process.log_path.read_text()
