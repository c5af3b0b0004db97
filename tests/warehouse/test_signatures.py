"""Signed ledgers: the key suffices to find forgeries."""

import os
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from predictor.errors import InputError
from tests.runs import Made, ended, write
from tests.warehouse.test_ledger import lines, problems
from warehouse.store import warehouse_audit
from warehouse.store.checksums import checksum
from warehouse.store.creation import make_folder
from warehouse.store.folder import SNAPSHOT
from warehouse.store.ledger import KEY_VARIABLE, LEDGER, enter, is_signed, read_ledger
from warehouse.store.writer import Writer


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warehouse_audit, "WAIT_SECONDS", 0.0)
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


@pytest.fixture(scope="module")
def made() -> Made:
    return ended("srtf", jobs=2)


def key_file(path: Path, seed: int = 1) -> Path:
    private = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    public = private.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
    path.with_suffix(".pub").write_bytes(public + b" someone@somewhere\n")
    return path


def test_with_a_key_entries_are_signed(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse, key = tmp_path / "w", key_file(tmp_path / "key")
    write(warehouse, made.start, made.rounds)  # not signed, but held by the chain
    monkeypatch.setenv(KEY_VARIABLE, str(key))
    assert problems(warehouse) == [f"{LEDGER}, line 4 nothing is signed with the key"]
    write(warehouse, made.start, made.rounds)
    ledger = read_ledger(warehouse)
    last = ledger.entries[-1]
    assert is_signed(last.hash, last.key, last.signature)
    assert not is_signed(last.previous, last.key, last.signature)
    assert 0 < ledger.signed < len(ledger.entries)
    monkeypatch.setenv(KEY_VARIABLE, str(key.with_suffix(".pub")))
    assert problems(warehouse) == []
    with pytest.raises(InputError, match="is a public key"):
        write(warehouse, made.start, made.rounds)
    monkeypatch.delenv(KEY_VARIABLE)
    assert problems(warehouse) == []
    before = sorted(warehouse.rglob("*"))
    with pytest.raises(InputError, match="is signed, and no key is given"):
        write(warehouse, made.start, made.rounds)
    assert sorted(warehouse.rglob("*")) == before


def test_an_entry_of_another_key_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warehouse, key = tmp_path / "w", key_file(tmp_path / "key")
    warehouse.mkdir()
    monkeypatch.setenv(KEY_VARIABLE, str(key))
    assert read_ledger(warehouse).problems == ((1, "is missing, and a key is given"),)
    enter(warehouse, warehouse, {"a": ""})
    monkeypatch.setenv(KEY_VARIABLE, str(key_file(tmp_path / "other", 2)))
    enter(warehouse, warehouse, {"a": ""})
    monkeypatch.setenv(KEY_VARIABLE, str(key))
    enter(warehouse, warehouse, {"a": ""})
    assert read_ledger(warehouse).problems == ((2, "is not signed with the key"),)
    first, *rest = lines(warehouse)
    row = orjson.loads(first)
    row["signature"] = row["signature"][::-1]
    (warehouse / LEDGER).write_bytes(orjson.dumps(row) + b"\n" + b"".join(rest))
    monkeypatch.delenv(KEY_VARIABLE)
    found = read_ledger(warehouse).problems
    assert (1, "has a wrong signature") in found
    assert (2, "does not follow the line before, which has another hash") in found


def test_a_snapshot_counts_as_its_reader_demands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warehouse = tmp_path / "w"
    path = warehouse / SNAPSHOT
    make_folder(warehouse)
    path.parent.mkdir()
    path.write_text("{}")
    unused = [f"{SNAPSHOT} differs from {LEDGER}, and is not used: remove it"]
    enter(warehouse, warehouse / "campaigns", {path.name: checksum(path)})  # of another folder
    assert unused[0] in problems(warehouse)
    enter(warehouse, path.parent, {path.name: checksum(path)})
    assert unused[0] not in problems(warehouse)
    monkeypatch.setenv(KEY_VARIABLE, str(key_file(tmp_path / "key")))
    enter(warehouse, warehouse, {})
    assert problems(warehouse)[-1:] == unused  # not signed
    enter(warehouse, path.parent, {path.name: checksum(path)})
    assert unused[0] not in problems(warehouse)


def no_file(path: Path) -> None:
    """There is none."""


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage")


def of_another_kind(path: Path) -> None:
    private = generate_private_key(SECP256R1())
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))


def with_a_passphrase(path: Path) -> None:
    private = Ed25519PrivateKey.generate()
    lock = BestAvailableEncryption(b"secret")
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, lock))


@pytest.mark.parametrize(
    "write_key", [no_file, os.mkfifo, garbage, of_another_kind, with_a_passphrase]
)
def test_a_file_without_a_key_is_refused_in_a_line(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch, write_key: Callable[[Path], None]
) -> None:
    write_key(tmp_path / "key")
    monkeypatch.setenv(KEY_VARIABLE, str(tmp_path / "key"))
    with pytest.raises(InputError, match="holds no Ed25519 key") as caught:
        write(tmp_path / "w", made.start, made.rounds)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "w").exists()


def test_a_missing_key_hides_no_other_error(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "w").mkdir()
    inside = key_file(tmp_path / "w" / "key")

    def write_without_key(reason: Exception | None) -> None:
        monkeypatch.delenv(KEY_VARIABLE, raising=False)
        with Writer(tmp_path / "w", made.start) as written:
            written.append(*made.rounds[0])
            monkeypatch.setenv(KEY_VARIABLE, str(inside))
            if reason is not None:
                raise reason

    with pytest.raises(ValueError, match="the reason"):
        write_without_key(ValueError("the reason"))
    with pytest.raises(InputError, match="is in the warehouse"):
        write_without_key(None)
    with pytest.raises(InputError, match="is in the warehouse"):
        write(tmp_path / "w", made.start, made.rounds)
