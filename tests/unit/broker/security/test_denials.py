"""Denials in the audit log: one line for each operation and type of a request, whatever it named."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from suiro.broker.refusals import CHARACTERS_SHOWN
from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.security.authorizer import Denials
from suiro.broker.security.session import Session

READ, WRITE = Operation.READ, Operation.WRITE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
ALICE = Session(principal="User:alice", host="10.0.0.7", listener="SASL_PLAINTEXT")


def told(caplog: pytest.LogCaptureFixture, denials: Denials) -> list[str]:
    caplog.clear()
    with caplog.at_level(logging.INFO, "suiro.audit"):
        denials.write()
    return list(caplog.messages)


def test_a_single_one(caplog: pytest.LogCaptureFixture) -> None:
    denials = Denials(ALICE)
    denials.add(READ, TOPIC, "t", "DefaultDeny")
    line = (
        "Principal = User:alice is Denied operation = READ from host = 10.0.0.7 "
        "on resource = TOPIC:LITERAL:t based on rule DefaultDeny"
    )
    assert told(caplog, denials) == [line]
    assert told(caplog, denials) == []


def test_many_are_counted(caplog: pytest.LogCaptureFixture) -> None:
    denials = Denials(ALICE)
    for number in range(100_000):
        denials.add(READ, TOPIC, f"t{number}", "DefaultDeny")
    denials.add(WRITE, TOPIC, "t", "DefaultDeny")
    denials.add(READ, GROUP, "g", "DefaultDeny")
    denials.add(READ, GROUP, "h", "MatchingAcl(...)")
    of_topics, of_writes, of_groups = told(caplog, denials)
    assert "resource = TOPIC:LITERAL:t0, t1, t2 and 99997 more based on rule DefaultDeny" in of_topics
    assert "operation = WRITE" in of_writes
    assert of_groups.endswith("GROUP:LITERAL:g, h based on rule DefaultDeny and others")


def test_a_name_cannot_forge_a_line_nor_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    denials = Denials(replace(ALICE, principal="User:CN=a\nPrincipal = User:root is Denied"))
    denials.add(WRITE, TOPIC, "x\nPrincipal = User:root is Denied", "DefaultDeny")
    denials.add(WRITE, TOPIC, "é" * 1_000_000, "DefaultDeny")
    (line,) = told(caplog, denials)
    assert "\n" not in line
    assert "... (1000000 characters) based on rule DefaultDeny" in line
    assert len(line) < 2 * CHARACTERS_SHOWN
