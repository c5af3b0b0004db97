"""Archives of strangers: what is stored of them, and what is refused."""

import gzip
import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from containers.leasing import code
from containers.leasing.code import check_stored, code_folder, store_code
from predictor.errors import InputError

Member = tuple[tarfile.TarInfo, bytes]


def file(name: str, content: bytes = b"", mode: int = 0o644, **fields: object) -> Member:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), mode
    for field, value in fields.items():
        setattr(member, field, value)
    return member, content


def packed(*members: Member) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as tar:
        for member, content in members:
            tar.addfile(member, io.BytesIO(content))
    return made.getvalue()


def stored(storage: Path, archive: bytes, named: Iterable[str] = (), tenant: str = "a") -> Path:
    digest = store_code(storage, tenant, io.BytesIO(archive), {*named})
    assert digest == hashlib.sha256(archive).hexdigest()
    return code_folder(storage, tenant, digest)


def test_files_and_folders_are_stored_once(tmp_path: Path) -> None:
    archive = packed(
        file("./train.py", b"pass"), file("lib/run.sh", b"x", 0o4777), file("e", type=b"5")
    )
    folder = stored(tmp_path, archive)
    found = {str(path.relative_to(folder)): oct(path.stat().st_mode) for path in folder.rglob("*")}
    assert found == {
        "train.py": "0o100644",
        "lib": "0o40755",
        "lib/run.sh": "0o100755",
        "e": "0o40755",
    }
    assert stored(tmp_path, archive) == folder
    assert os.listdir(folder.parent) == [folder.name]
    check_stored(tmp_path, "a", folder.name)
    with pytest.raises(InputError, match="tenant b has stored no code"):
        check_stored(tmp_path, "b", folder.name)


def bomb() -> bytes:
    """A small archive with a header of hundreds of MiB."""
    head = tarfile.TarInfo("x")
    head.type, head.size = b"L", 2**29
    return gzip.compress(head.tobuf(tarfile.GNU_FORMAT) + bytes(2**25))


def many_names() -> bytes:
    """A header of a long name, and so on, which tarfile reads by recursion."""
    head = tarfile.TarInfo("x")
    head.type, head.size = b"L", 1
    names = (head.tobuf(tarfile.GNU_FORMAT) + b"x".ljust(512, b"\0")) * 1500
    return gzip.compress(names + gzip.decompress(packed(file("x"))))


def changed(change: Callable[[bytes], bytes]) -> bytes:
    """An archive of two files, changed within its compression."""
    return gzip.compress(change(gzip.decompress(packed(file("x"), file("y")))))


ATTACKS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a path above": (lambda: packed(file("a/../../x")), "not a plain path"),
    "an absolute path": (lambda: packed(file("/etc/x")), "not a plain path"),
    "a name of two lines": (lambda: packed(file("a\nb")), "not a plain path"),
    "a long name": (lambda: packed(file("x" * 300)), "not a plain path"),
    "a long path": (lambda: packed(file("/".join(["x" * 250] * 20))), "more than 1,024 bytes"),
    "a deep folder": (lambda: packed(file("x/" * 40 + "y")), "more than 32 deep"),
    "a link out": (lambda: packed(file("x", type=b"2", linkname="/etc")), "no file and no"),
    "a hard link": (lambda: packed(file("x", type=b"1", linkname="y")), "no file and no"),
    "a device": (lambda: packed(file("x", type=b"3", devmajor=1)), "no file and no folder"),
    "a pipe": (lambda: packed(file("x", type=b"6")), "no file and no folder"),
    "a path twice": (lambda: packed(file("x"), file("x")), "holds a path twice"),
    "a file as a folder": (lambda: packed(file("x"), file("x/y")), "holds a path twice"),
    "nothing": (lambda: packed(), "is empty"),
    "no archive": (lambda: b"train.py", "is not an archive"),
    "no tar": (lambda: gzip.compress(b"x" * 1024), "is not an archive"),
    "half an archive": (lambda: packed(file("x", os.urandom(9999)))[:5000], "is not an archive"),
    "many files": (lambda: packed(*(file(str(n)) for n in range(11))), "more than 10 files"),
    "many folders": (lambda: packed(file("a/b/c/d/e/f"), file("g/h/i/j/k")), "more than 10 files"),
    "many names": (many_names, "is not an archive"),
    "no end": (lambda: changed(lambda tar: tar[:1024]), "is not an archive"),
    "half a header": (lambda: changed(lambda tar: tar[:700]), "is not an archive"),
    "garbage after a file": (
        lambda: changed(lambda tar: tar[:512] + b"x" * 512 + tar[1024:]),
        "is not an archive",
    ),
    "a second archive within": (lambda: changed(lambda tar: tar + tar), "more follows its end"),
    "a second archive": (lambda: packed(file("x")) + packed(file("y")), "more follows its end"),
    "large files": (lambda: packed(*(file(n, bytes(600)) for n in "xy")), "unpacks to more"),
    "a bomb of headers": (bomb, "beside its files"),
    "a large archive": (lambda: os.urandom(2**17), "is larger than"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_refused_and_leaves_nothing(
    attack: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "MOST_FILES", 10)
    monkeypatch.setattr(code, "MOST_UNPACKED", 1000 if "large f" in attack else 2**20)
    monkeypatch.setattr(code, "MOST_PACKED", 2**16)
    make, problem = ATTACKS[attack]
    with pytest.raises(InputError, match=problem):
        stored(tmp_path / "storage", make())
    left = [path for path in tmp_path.rglob("*") if path.name not in ("storage", "code", "a")]
    assert left == []


def test_a_tenant_s_name_leads_nowhere_else(tmp_path: Path) -> None:
    for tenant in ("..", "a/b", "", "a\0"):
        with pytest.raises(InputError, match="has no folder of code"):
            stored(tmp_path, packed(file("x")), tenant=tenant)
    assert os.listdir(tmp_path) == []


def test_old_codes_make_room_unless_active_jobs_name_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code, "MOST_KEPT", 2)
    folders = []
    for number in range(2):
        folders.append(stored(tmp_path, packed(file(str(number)))))
        os.utime(folders[-1], (number, number))
    folders.append(stored(tmp_path, packed(file("2")), named=[folders[0].name]))
    assert [folder.exists() for folder in folders] == [True, False, True]
    active = [folders[0].name, folders[2].name]
    with pytest.raises(InputError, match="2 codes of active jobs"):
        stored(tmp_path, packed(file("3")), named=active)
    assert stored(tmp_path, packed(file("2")), named=active) == folders[2]
