"""Who has signed a record, and the file with the keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.errors import ConfigError
from suiro.views.control.journal_keys import Keys, Signer, key_id_of

ONE, OTHER = b"one secret of at least 32 characters", b"another secret, of no less than these"


def signer(*secrets: bytes, topic: str = "_suiro_views", topic_id: str = "a") -> Signer:
    return Signer(keys=Keys.of(*secrets), topic=topic, topic_id=topic_id)


def test_a_signature_is_for_one_record_at_one_place() -> None:
    signature = signer(ONE).sign(7, b"view/delays", b"{}")
    assert signer(ONE).fault(signature, 7, b"view/delays", b"{}") is None
    for changed in (
        signer(ONE).fault(signature, 8, b"view/delays", b"{}"),
        signer(ONE).fault(signature, 7, b"view/delay", b"s{}"),
        signer(ONE).fault(signature, 7, b"view/delays", b"{ }"),
        signer(ONE).fault(signature, 7, b"view/delays", None),
        signer(ONE, topic_id="b").fault(signature, 7, b"view/delays", b"{}"),
        signer(ONE, topic="_suiro_view").fault(signature, 7, b"view/delays", b"{}"),
    ):
        assert changed is not None
        assert "was changed, or copied from another place" in changed


def test_nothing_and_an_empty_value_are_not_the_same() -> None:
    signature = signer(ONE).sign(7, b"code/delays/abc", None)
    assert signer(ONE).fault(signature, 7, b"code/delays/abc", None) is None
    assert signer(ONE).fault(signature, 7, b"code/delays/abc", b"") is not None


def test_whose_key_it_was() -> None:
    signature = signer(OTHER).sign(7, b"host", b"{}")
    assert signer(ONE, OTHER).fault(signature, 7, b"host", b"{}") is None
    said = signer(ONE).fault(signature, 7, b"host", b"{}")
    assert said == f"is signed with key {Keys.of(OTHER).id}, which this host does not have"
    assert key_id_of(signature) == Keys.of(OTHER).id


@pytest.mark.parametrize("signature", [b"", b"1", b"2 0123456789ab x", b"1 \x1b[2J3456789 x", b"1 0123456789ab x y"])
def test_what_is_no_signature(signature: bytes) -> None:
    assert signer(ONE).fault(signature, 7, b"host", b"{}") == "has a signature that is none of ours"
    assert signer(ONE).fault(None, 7, b"host", b"{}") == "is not signed"


def test_a_key_is_made_once_for_its_user_only(tmp_path: Path) -> None:
    path = tmp_path / "views" / "key"
    made = Keys.kept(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert Keys.kept(path) == made == Keys.read(path)
    assert [one.name for one in path.parent.iterdir()] == ["key"]
    assert Keys.kept(tmp_path / "other") != made


def test_the_first_line_signs_and_all_are_known(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_bytes(ONE + b"\n\n" + OTHER + b"\n")
    path.chmod(0o600)
    keys = Keys.read(path)
    assert keys.id == Keys.of(ONE).id
    assert list(keys.secrets.values()) == [ONE, OTHER]


@pytest.mark.parametrize(
    ("content", "mode", "said"),
    [
        (ONE, 0o644, "others may read the journal's key .* chmod 600"),
        (ONE, 0o620, "others may read the journal's key"),
        (b"short", 0o600, "lines of at least 32 characters"),
        (ONE + b"\nshort", 0o600, "lines of at least 32 characters"),
        (b"\n", 0o600, "lines of at least 32 characters"),
        (ONE * 10_000, 0o600, "lines of at least 32 characters"),
    ],
)
def test_a_file_that_is_no_key(tmp_path: Path, content: bytes, mode: int, said: str) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=said):
        Keys.kept(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere cannot be read: No such file"):
        Keys.read(tmp_path / "nowhere")
