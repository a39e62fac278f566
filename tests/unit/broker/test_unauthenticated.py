"""Connections that have not logged in: who gives way to whom, and when."""

from __future__ import annotations

import pytest

from suiro.broker.net.unauthenticated import FAIR_CHANCE_MS, UnauthenticatedConnections


class Peer:
    def __init__(self, host: str, unauthenticated: UnauthenticatedConnections, now_ms: int) -> None:
        self.host = host
        self.is_open = True
        self._unauthenticated = unauthenticated
        unauthenticated.add(self, now_ms)

    def close(self) -> None:
        self.is_open = False
        assert self._unauthenticated.remove(self)


def test_the_first_of_the_address_with_the_most_gives_way_after_its_fair_chance() -> None:
    unauthenticated = UnauthenticatedConnections("OUTSIDE")
    lone = Peer("10.0.0.1", unauthenticated, 0)
    first, second = Peer("10.0.0.2", unauthenticated, 100), Peer("10.0.0.2", unauthenticated, 200)
    assert unauthenticated.wait_ms(100) == FAIR_CHANCE_MS
    assert unauthenticated.wait_ms(100 + FAIR_CHANCE_MS) == 0
    unauthenticated.let_one_go()
    assert [peer.is_open for peer in (lone, first, second)] == [True, False, True]
    unauthenticated.let_one_go()  # one each: who came first
    assert [peer.is_open for peer in (lone, second)] == [False, True]
    assert len(unauthenticated) == 1


def test_who_has_logged_in_is_not_here_any_more() -> None:
    unauthenticated = UnauthenticatedConnections("OUTSIDE")
    peer = Peer("10.0.0.1", unauthenticated, 0)
    assert unauthenticated.remove(peer)
    assert not unauthenticated.remove(peer)
    unauthenticated.expire(now_ms=10_000_000, timeout_ms=1)
    assert peer.is_open
    assert len(unauthenticated) == 0


def test_who_takes_too_long_is_closed_and_one_line_a_minute_tells_how_many(
    caplog: pytest.LogCaptureFixture,
) -> None:
    unauthenticated = UnauthenticatedConnections("OUTSIDE")
    peers = [Peer(f"10.0.0.{at % 3}", unauthenticated, at) for at in range(6)]
    unauthenticated.expire(now_ms=1002, timeout_ms=1000)
    assert [peer.is_open for peer in peers] == [False, False, False, True, True, True]
    assert len(caplog.records) == 1
    assert "listener OUTSIDE: closed 3 connections that had not logged in; 3 are open" in caplog.text
    unauthenticated.expire(now_ms=2000, timeout_ms=1000)
    assert len(caplog.records) == 1
    unauthenticated.expire(now_ms=100_000, timeout_ms=1000)
    assert "closed 3 connections that had not logged in; 0 are open" in caplog.records[1].message
