# SPDX-License-Identifier: Apache-2.0
"""Tests keys in files, and the record of when and by which engine each key was used.

Key files that other users can read are refused, and no error message shows a key.
"""

from __future__ import annotations

import os
from errno import EACCES, ENOSPC
from pathlib import Path

import pytest

from sluice.sa_keys import KeyFiles, fingerprint
from sluice.sa_model import ALGORITHMS, KeyUnavailableError
from sluice.sa_uses import FILE_NAME, SaStoreError, SaUses, read_clocks
from sluice.state.sa_table import Clocks

GCM, CBC = ALGORITHMS["aes-128-gcm"], ALGORITHMS["aes-128-cbc-hmac-sha-256-128"]


def key_file(directory: Path, text: str, mode: int = 0o600, name: str = "key") -> Path:
    path = directory / name
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("text", ["0f" * 20, "0x" + "0F" * 20, " " + "0f" * 20 + "\n\n"])
def test_digits_are_read_however_they_are_written(tmp_path: Path, text: str) -> None:
    keys = KeyFiles(GCM, key_file(tmp_path, text), None).read()
    assert keys.key.lower() == b"0f" * 20
    assert fingerprint(KeyFiles(GCM, tmp_path / "key", None)) == keys.fingerprint()
    keys.erase()
    assert keys.key == bytes(40)


def test_an_integrity_key_is_a_second_file(tmp_path: Path) -> None:
    files = KeyFiles(
        CBC, key_file(tmp_path, "01" * 16), key_file(tmp_path, "02" * 32, name="integrity")
    )
    keys = files.read()
    assert (len(keys.key), len(keys.integrity_key)) == (32, 64)


def test_a_file_of_another_user_names_the_owner_that_it_must_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = key_file(tmp_path, "0f" * 20)
    os.chown(path, 12345, 12345)

    def refuse(*_: object) -> int:
        raise PermissionError(EACCES, os.strerror(EACCES))

    monkeypatch.setattr(os, "open", refuse)
    says = r"Permission denied: belongs to user 12345, .* runs as user 0; chown it to user 0, chmod"
    with pytest.raises(KeyUnavailableError, match=says):
        KeyFiles(GCM, path, None).read()


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("5ec7" * 9, 0o600, r"40 hexadecimal digits \(20 bytes, salt included\).* has 36"),
        ("5ec7zz" * 9, 0o600, "hexadecimal digits only"),
        ("5ec7" * 400, 0o600, "too long"),
        ("5ec7" * 10, 0o640, "mode 0640"),
        ("5ec7" * 10, 0o602, "mode 0602"),
        ("", 0o600, "has 0"),
    ],
)
def test_a_wrong_file_is_named_and_not_told(
    tmp_path: Path, text: str, mode: int, says: str
) -> None:
    path = key_file(tmp_path, text, mode)
    with pytest.raises(KeyUnavailableError, match=says) as error:
        KeyFiles(GCM, path, None).read()
    assert str(path) in str(error.value)
    assert "5ec7" not in str(error.value)


def test_what_is_no_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    for path, says in (
        (tmp_path / "fifo", "not a regular file"),
        (tmp_path, "not a regular file"),
        (tmp_path / "absent", "No such file"),
    ):
        with pytest.raises(KeyUnavailableError, match=says):
            KeyFiles(GCM, path, None).read()


@pytest.fixture
def uses(tmp_path: Path) -> SaUses:
    made = SaUses(tmp_path)
    made.open()
    return made


def again(uses: SaUses) -> SaUses:
    """Returns the record as a restart reads it."""
    uses.close()
    made = SaUses(uses.path.parent)
    made.open()
    return made


def test_a_record_outlives_the_controller(uses: SaUses) -> None:
    assert uses.number() == 1
    uses.record_use(1, [("aa", 1), ("bb", 0)], Clocks(100.0))
    uses.record_use(2, [("cc", 2)], Clocks(150.0))
    uses.record_use(1, [("aa", 3)], Clocks(200.0))
    uses.expire(["bb"])
    for _ in range(3):
        uses = again(uses)
        assert uses.uses["aa"] == (1, Clocks(100.0), False), "the key counts from its first use"
        assert uses.uses["bb"] == (1, Clocks(100.0), True)
        assert uses.uses["cc"] == (2, Clocks(150.0), False)
        assert uses.next_number == 4, "no number is used twice"
    assert (uses.path.stat().st_mode & 0o777) == 0o600
    uses.record_use(1, [("bb", 0)], Clocks(300.0))
    assert uses.uses["bb"].is_expired, "an expired key stays expired"


def test_the_boot_of_a_key_is_on_record(uses: SaUses) -> None:
    since = Clocks(100.0, "a boot", 7.5)
    uses.record_use(1, [("aa", 1)], since)
    for _ in range(2):
        uses = again(uses)
        assert uses.uses["aa"].since == since


def test_lines_of_a_version_without_boots_are_read(uses: SaUses) -> None:
    with uses.path.open("a") as file:
        file.write('{"key": "aa", "number": 1, "engine": 2, "since": 100.0}\n')
    assert again(uses).uses["aa"] == (2, Clocks(100.0), False)


def test_an_expiry_that_a_full_disk_refused_is_written_later(
    uses: SaUses, monkeypatch: pytest.MonkeyPatch
) -> None:
    uses.record_use(1, [("aa", 1), ("bb", 2)], Clocks(100.0))
    with monkeypatch.context() as full:
        full.setattr("sluice.sa_uses.os.write", refuse_to_write)
        with pytest.raises(SaStoreError, match="No space left"):
            uses.expire(["aa"])
    assert uses.uses["aa"].is_expired
    assert uses.has_unwritten
    uses.expire(["bb"])
    written = again(uses)
    assert not written.has_unwritten
    assert [key for key, use in written.uses.items() if use.is_expired] == ["aa", "bb"]


def refuse_to_write(file: int, text: bytes) -> int:
    raise OSError(ENOSPC, os.strerror(ENOSPC))


def test_the_clocks_are_of_this_boot() -> None:
    one, other = read_clocks(), read_clocks()
    assert one.boot == other.boot
    assert 0 <= (other.age(one) or 0.0) < 60


def test_half_a_line_at_the_end_said_nothing(uses: SaUses) -> None:
    uses.record_use(1, [("aa", 1)], Clocks(100.0))
    with uses.path.open("a") as file:
        file.write('{"key": "bb", "numb')
    assert set(again(uses).uses) == {"aa"}


def test_damage_ends_the_start(tmp_path: Path, uses: SaUses) -> None:
    uses.record_use(1, [("aa", 1)], Clocks(100.0))
    text = (tmp_path / FILE_NAME).read_text()
    (tmp_path / FILE_NAME).write_text("{}\n" + text)
    with pytest.raises(SaStoreError, match="give all SAs new keys"):
        again(uses)


def test_a_record_that_cannot_be_written_is_not_made(uses: SaUses) -> None:
    uses.close()
    with pytest.raises(SaStoreError):
        uses.record_use(1, [("aa", 1)], Clocks(100.0))
    assert uses.uses == {}
