"""Export and import of runs: tar archives of a run's folder and its label."""

import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from io import BytesIO
from pathlib import Path, PurePosixPath

import orjson

from predictor.errors import InputError, WarehouseError
from warehouse.store.arrow import open_parquet
from warehouse.store.audit import USUAL_MIB, Audit, audit, audit_within
from warehouse.store.checksums import CHECKSUMS, checksum
from warehouse.store.creation import make_folder
from warehouse.store.durable import give_name, make_held_folder, temporary_name, write_file, writing
from warehouse.store.folder import (
    EMPTY,
    RUN_NAME,
    WORKLOAD_FILE,
    name_of,
    place_of,
    records_folder,
    run_folder,
)
from warehouse.store.labelling import label_run
from warehouse.store.labels import Label, parse_label, read_labels
from warehouse.store.ledger import HEADER_FILE, enter
from warehouse.store.parts import WHOLE

LABEL = "label.json"
FILES = (HEADER_FILE, WORKLOAD_FILE, WHOLE, CHECKSUMS)
"""Files of an ended run."""

DIGEST_BYTES = 32
"""Bytes of a round's hash; hashes do not compress."""


def export_run(warehouse: Path, run: str, file: Path) -> Audit:
    """Audit an ended run and write it to a new file.

    Raises:
        InputError: There is no such run, it has not ended, or the file exists.
        WarehouseError: The run is damaged.
    """
    folder = run_folder(warehouse, run)
    if file.exists():
        raise InputError(str(file), "exists", "name a new file")
    if not (folder / WHOLE).is_file():
        raise InputError(f"run {run!r}", "has not ended", "resume it first")
    found = audit(warehouse, run)
    _check_whole(found, f"run {run!r}", f"see shockwave run audit {run}")
    temporary = temporary_name(file)
    try:
        with tarfile.open(temporary, "w", format=tarfile.PAX_FORMAT) as archive:
            place = PurePosixPath(folder.relative_to(warehouse).as_posix())
            for name in FILES:
                if (folder / name).is_file():
                    archive.add(folder / name, str(place / name), filter=_plain)
            label = read_labels(warehouse).get(run)
            if label is not None:
                content = orjson.dumps(asdict(label))
                member = _plain(tarfile.TarInfo(str(place / LABEL)))
                member.size = len(content)
                archive.addfile(member, BytesIO(content))
        temporary.replace(file)
    except OSError as error:
        problem, remedy = f"cannot be written ({error.strerror})", "choose a writable folder"
        raise InputError(str(file), problem, remedy) from None
    finally:
        temporary.unlink(missing_ok=True)
    return found


def import_run(warehouse: Path, file: Path, memory_mib: int = USUAL_MIB) -> Audit:
    """Audit the run in a file of `export_run`, in at most `memory_mib` MiB, and add it.

    Raises:
        InputError: The file is not a sound archive, the warehouse already has its run, or the audit
            exceeds its memory.
        WarehouseError: The warehouse cannot be written.
    """
    with writing(warehouse):
        make_folder(warehouse)
        with _scratch(warehouse) as fresh:
            folder, label = _unpacked(file, warehouse, fresh)
            run = name_of(folder)
            found = audit_within(memory_mib, fresh, run, str(file))
            _check_whole(found, str(file), "export it again, or allow its audit more memory")
            target = warehouse / folder.relative_to(fresh)
            if place_of(warehouse, run).exists():
                remedy = _remedy_for_existing(warehouse, found)
                raise InputError(f"run {run!r}", "is in the warehouse already", remedy)
            target.parent.mkdir(parents=True, exist_ok=True)
            sums = {path.name: checksum(path) for path in sorted(folder.glob("*.parquet"))}
            # Write the entry first: after a kill, the same command completes the import.
            enter(warehouse, target, sums)
            give_name(folder, target)
        if label is not None:
            label_run(warehouse, run, label)
    return found


@contextmanager
def _scratch(warehouse: Path) -> Iterator[Path]:
    """Yield a folder in the warehouse to unpack into; remove those of killed imports."""
    folder, lock = make_held_folder(
        warehouse, ".import-", records_folder(warehouse) / EMPTY / ".lock"
    )
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def _remedy_for_existing(warehouse: Path, found: Audit) -> str:
    there = audit(warehouse, found.run)
    if there.last_hash == found.last_hash:
        return "it is the same run: there is nothing to do"
    return f"it is another one: remove that first with: shockwave run rm {found.run}"


def _check_whole(found: Audit, place: str, remedy: str) -> None:
    if found.findings or found.unended:
        problem = "its jobs have not all ended"
        if found.findings:
            problem = f"{found.findings[0].place}: {found.findings[0].problem}"
        raise InputError(place, f"is not whole ({problem})", remedy)


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Return a member without owner and times, so that the same run gives the same bytes."""
    member.mode, member.mtime, member.uid, member.gid = 0o644, 0, 0, 0
    member.uname = member.gname = ""
    return member


def _unpacked(file: Path, warehouse: Path, fresh: Path) -> tuple[Path, Label | None]:
    """Unpack a file into an empty folder, as a warehouse; return the run's folder and label."""
    records = PurePosixPath(records_folder(warehouse).relative_to(warehouse))
    label, found = None, set[Path]()
    with _reading(file):
        with tarfile.open(file, "r:") as archive:
            for member in archive:
                path = PurePosixPath(member.name)
                known = path.parent.parent == records and path.name in (*FILES, LABEL)
                plain = known and member.isreg() and not member.issparse()
                content = archive.extractfile(member) if plain else None
                folder = fresh / path.parent
                if content is None or not RUN_NAME.fullmatch(name_of(folder)):
                    raise ValueError
                if (folder / path.name).exists():
                    raise ValueError
                found.add(folder)
                if path.name == LABEL:
                    label = parse_label(orjson.loads(content.read(2**20)))
                    continue
                folder.mkdir(parents=True, exist_ok=True)
                with write_file(folder / path.name) as target:
                    shutil.copyfileobj(content, target)
        (folder,) = found
        for rounds in folder.glob("round=*.parquet"):
            with suppress(WarehouseError), open_parquet(rounds) as stored:  # the audit reports it
                if stored.metadata.num_rows * DIGEST_BYTES > rounds.stat().st_size:
                    raise ValueError
    return folder, label


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Convert errors of reading a file to an error that names it."""
    try:
        yield
    except (tarfile.TarError, ValueError, KeyError, TypeError, AttributeError, EOFError):
        problem = "is not a run that was exported"
        raise InputError(str(file), problem, "give a file of shockwave run export") from None
    except OSError as error:
        if error.filename != str(file):
            raise
        remedy = "give a file of shockwave run export"
        raise InputError(str(file), str(error.strerror), remedy) from None
