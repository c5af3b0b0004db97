"""Code of a job, packed where it is submitted: a folder, an archive, or a revision of a repository.

The service gets an archive only, so it needs no network, no git and nobody's credentials.
"""

import gzip
import os
import re
import shlex
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, BinaryIO, Protocol
from urllib.parse import quote

from containers.leasing.code import FIELD, MOST_FILES, MOST_PACKED, MOST_UNPACKED
from predictor.errors import InputError
from predictor.image import STORED_CODE

GIT = re.compile(r"git\+(?P<url>[^\s#]+?)@(?P<revision>[\w./+-]+)", re.ASCII)
"""A revision of a repository, as pip writes it."""

WITH_SECRET = re.compile(r"git\+(https?://[^/?#]*@|[^/]*://[^/?#]*:[^/?#]*@)", re.IGNORECASE)
"""Address with a password, or over HTTP with a user, which may be a token."""


class CodeStore(Protocol):
    """A service that stores code: `Client` or `AuthorizedApi`."""

    def store_code(self, archive: BinaryIO, tenant: str = "") -> str:
        """Store an archive, and return its SHA-256."""
        ...


def store_fields(fields: Mapping[str, Any], service: CodeStore, base: Path) -> dict[str, Any]:
    """Return a job's fields with its code stored; a path in them is relative to `base`.

    Raises:
        InputError: The code cannot be packed, or the service refuses it.
    """
    code = fields.get(FIELD)
    if not isinstance(code, str) or not code or STORED_CODE.fullmatch(code):
        return dict(fields)
    with pack(code, base) as (origin, archive):
        if archive.seek(0, os.SEEK_END) > MOST_PACKED:
            problem = f"is packed larger than {MOST_PACKED // 2**20} MiB"
            raise InputError(FIELD, problem, "leave out data, and mount it as a volume")
        archive.seek(0)
        digest = service.store_code(archive, str(fields.get("tenant", "")))
    return {**fields, FIELD: f"{origin}#sha256={digest}"}


@contextmanager
def pack(code: str, base: Path) -> Iterator[tuple[str, BinaryIO]]:
    """Yield where code comes from, and its archive, at any position.

    Raises:
        InputError: There is no such code, or it is too large.
    """
    if code.startswith("git+"):
        if WITH_SECRET.match(code):
            problem = "names a user or a password in its address, which records would keep"
            raise InputError(FIELD, problem, "leave it out: git asks its credential helper")
        found = GIT.fullmatch(code)
        if not found:
            problem = f"{code[:80]!r} is not a revision of a repository"
            remedy = "give one like git+https://host/repository@v3"
            raise InputError(FIELD, problem, remedy)
        with TemporaryFile() as file:
            commit = _fetch(found["url"], found["revision"], file)
            yield f"git+{found['url']}@{commit}", file
        return
    path = base / code
    name = quote(path.resolve().name or "code")
    if path.is_dir():
        with TemporaryFile() as file:
            _pack_folder(path, file)
            yield name, file
        return
    try:
        with path.open("rb") as file:
            yield name, file
    except OSError as error:
        remedy = "give a folder, an archive .tar.gz, or git+URL@REVISION"
        raise InputError(FIELD, f"{code[:80]!r} cannot be read: {error.strerror}", remedy) from None


def _pack_folder(folder: Path, file: BinaryIO) -> None:
    """Pack a folder's files; the same contents give the same bytes."""
    total = 0
    with (
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", dereference=True) as tar,  # of hard links
    ):
        for number, path in enumerate(_list_files(folder)):
            if path.is_symlink() or not path.is_file():
                problem = f"{path} is a link or a device, and code has only files"
                raise InputError(FIELD, problem, "copy the file there, or leave it out")
            member = tar.gettarinfo(path, str(path.relative_to(folder)))
            total += member.size
            if total > MOST_UNPACKED or number >= MOST_FILES:
                limit = f"{MOST_UNPACKED // 2**20} MiB or {MOST_FILES:,} files"
                remedy = "leave out data (.gitignore in a repository), and mount it as a volume"
                raise InputError(FIELD, f"{folder} is more than {limit}", remedy)
            member.mtime = member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.mode & 0o100 else 0o644
            with path.open("rb") as source:
                tar.addfile(member, source)


def _list_files(folder: Path) -> list[Path]:
    """List a folder's files; in work trees of git, those that git does not ignore.

    Raises:
        InputError: Git cannot say what it ignores, which may be secrets.
    """
    problem, remedy = f"{folder} is in a work tree of git, which is not installed", "install git"
    if shutil.which("git"):
        command = ["git", "-C", str(folder), "ls-files", "-z", "--cached", "--others"]
        listed = subprocess.run([*command, "--exclude-standard"], capture_output=True)
        if not listed.returncode:
            names = sorted({*listed.stdout.split(b"\0")} - {b""})
            paths = [folder / os.fsdecode(name) for name in names]
            return [path for path in paths if os.path.lexists(path) and not _is_folder(path)]
        problem = f"git cannot list the files of {folder}: {_last_line(listed.stderr)}"
        remedy = f"do what git -C {shlex.quote(str(folder))} status says"
    whole = folder.resolve()
    if any(os.path.lexists(at / ".git") for at in (whole, *whole.parents)):
        raise InputError(FIELD, problem, f"{remedy}, or give an archive .tar.gz")
    return sorted(_walk(folder))


def _walk(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder; of work trees of git in it, those that git does not ignore."""
    for path in folder.iterdir():
        if not _is_folder(path):
            yield path
        elif os.path.lexists(path / ".git"):
            yield from _list_files(path)
        else:
            yield from _walk(path)


def _last_line(said: bytes) -> str:
    """Return the last line that git said, without control characters."""
    lines = said.decode(errors="replace").strip().splitlines() or ["it failed"]
    return " ".join(lines[-1].split())[:200]


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _fetch(url: str, revision: str, file: BinaryIO) -> str:
    """Pack a revision of a repository without its history; return its full commit."""
    if not shutil.which("git"):
        raise InputError(FIELD, "needs git, which is not installed here", "install git")
    with TemporaryDirectory() as folder:

        def git(*words: str) -> bytes:
            environment = {**os.environ, "GIT_TERMINAL_PROMPT": "0"}
            command = ["git", "-C", folder, *words]
            done = subprocess.run(command, capture_output=True, env=environment)
            if done.returncode:
                problem = f"{revision} of {url} cannot be fetched: {_last_line(done.stderr)}"
                raise InputError(FIELD, problem, "give a branch, a tag or a full commit")
            return done.stdout

        git("init", "-q", "--bare")
        git("fetch", "-q", "--depth", "1", "--", url, revision)
        commit = git("rev-parse", "FETCH_HEAD^{commit}").decode().strip()
        archived = git("archive", "--format=tar", commit)
    with tarfile.open(fileobj=BytesIO(archived)) as tar:
        for member in tar:
            if not (member.isreg() or member.isdir()):
                problem = f"{member.name[:80]!r} of {revision} is a link, and code has only files"
                remedy = "replace it by a file, or submit a folder without it"
                raise InputError(FIELD, problem, remedy)
    with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
        packed.write(archived)
    return commit
