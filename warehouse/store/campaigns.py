"""Campaigns in a warehouse: their plans, the status of their cells, and finished runs by key.

    WAREHOUSE/campaigns/CAMPAIGN/plan.json       the resolved plan
    WAREHOUSE/campaigns/CAMPAIGN/campaign.toml   the campaign file, if there was one
    WAREHOUSE/campaigns/CAMPAIGN/cells.parquet   a row per cell
    WAREHOUSE/campaigns/cells/KEY.json           a finished cell: its run, hash and seconds
    WAREHOUSE/campaigns/cells/KEY.run            the run of a cell that has begun
    WAREHOUSE/campaigns/cells/KEY.lock           held by the process that works on the cell

A cell's key hashes the code and its run's start, so that campaigns share finished cells.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import orjson
import pyarrow as pa

from predictor.errors import InputError, ShockwaveError, WarehouseError, likely
from predictor.rows import from_row
from warehouse.store.arrow import read_parquet, rows_to_table, write_table
from warehouse.store.creation import make_folder
from warehouse.store.durable import check_regular, find_left_overs, hold_lock, write_text, writing
from warehouse.store.files import CELLS, ROUND, CellRow
from warehouse.store.folder import RUN_NAME, is_begun, place_of
from warehouse.store.ledger import enter_file
from warehouse.store.parts import WHOLE


@dataclass(frozen=True, slots=True)
class FinishedCell:
    """The result of a finished cell.

    Attributes:
        hash: The run's last hash.
        seconds: Wall-clock time of the run; of its last process if the run was resumed.
    """

    run: str
    hash: str
    seconds: float


def campaign_folder(warehouse: Path, campaign: str) -> Path:
    """Return the folder of a campaign's files."""
    return warehouse / "campaigns" / campaign


def write_plan(warehouse: Path, campaign: str, name: str, text: str) -> None:
    """Write a file of a campaign's plan.

    Raises:
        WarehouseError: The file cannot be written.
    """
    folder = campaign_folder(warehouse, campaign)
    with writing(warehouse):
        make_folder(warehouse)
        with _alone(folder):
            write_text(folder / name, text, partial(enter_file, warehouse))


def write_cells(warehouse: Path, campaign: str, rows: Sequence[CellRow]) -> None:
    """Replace the table of a campaign's cells.

    Raises:
        WarehouseError: The file cannot be written.
    """
    path = campaign_folder(warehouse, campaign) / "cells.parquet"
    with writing(warehouse), _alone(path.parent):
        write_table(path, rows_to_table(CELLS, rows), partial(enter_file, warehouse))


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a campaign's folder, and remove what killed processes left."""
    folder.mkdir(parents=True, exist_ok=True)
    with hold_lock(folder / ".lock"):
        for left_over in find_left_overs(folder):
            left_over.unlink()
        yield


def read_cells(warehouse: Path, campaign: str) -> list[CellRow]:
    """Return a campaign's cells, in the order of its plan.

    Raises:
        InputError: There is no such campaign.
        WarehouseError: The table of cells is damaged.
    """
    path = campaign_folder(warehouse, campaign) / "cells.parquet"
    if not path.is_file():
        known = (file.parent.name for file in path.parents[1].glob(f"*/{path.name}"))
        remedy = f"{likely(campaign, known)}list campaigns with: shockwave campaign show"
        if RUN_NAME.fullmatch(campaign) and is_begun(place_of(warehouse, campaign)):
            remedy = f"it is a run; see it with: shockwave run show {campaign}"
        raise InputError(f"campaign {campaign!r}", f"not in the warehouse {warehouse}", remedy)
    rows = read_parquet(path, CELLS).to_pylist()
    try:
        return [from_row(CellRow, row) for row in rows]
    except (TypeError, ValueError) as error:
        problem = f"does not hold cells ({error})"
        raise WarehouseError(str(path), problem, "restore it from a backup") from None


class CellStore:
    """Finished and begun cells of a warehouse, by key.

    Raises:
        WarehouseError: A file is damaged or cannot be written, or a run to finish has not ended.
    """

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._folder = warehouse / "campaigns" / "cells"

    def _hash_of(self, run: str) -> str | None:
        """Return the last hash of an ended run; None if it has not ended or is gone."""
        whole = place_of(self._warehouse, run) / WHOLE
        if not whole.is_file():
            return None
        hashes = read_parquet(whole, pa.schema([ROUND.field("hash")]))["hash"]
        return hashes[-1].as_py() if len(hashes) else ""

    def find_finished(self, key: str) -> FinishedCell | None:
        """Return the finished cell with this key, if its run still exists.

        Another run can have its id: `run rm` frees ids.
        """
        cell = self._read(key)
        return cell if cell and self._hash_of(cell.run) == cell.hash else None

    def find_replaced(self) -> Iterator[str]:
        """Yield keys of finished cells whose run's id another ended run has; skip damaged ones."""
        for path in sorted(self._folder.glob("*.json")):
            with contextlib.suppress(ShockwaveError, TypeError):
                cell = self._read(path.stem)
                if cell and self._hash_of(cell.run) not in (None, cell.hash):
                    yield path.stem

    def _read(self, key: str) -> FinishedCell | None:
        path = self._folder / f"{key}.json"
        try:
            return FinishedCell(**orjson.loads(check_regular(path).read_bytes()))
        except FileNotFoundError:
            return None
        except (OSError, TypeError, orjson.JSONDecodeError):
            remedy = "remove it, and the cell runs again"
            raise WarehouseError(str(path), "cannot be read", remedy) from None

    def finish(self, key: str, run: str, seconds: float) -> FinishedCell:
        """Record that a cell's run has ended."""
        digest = self._hash_of(run)
        if digest is None:
            raise WarehouseError(f"run {run!r}", "has not ended", "run the campaign again")
        cell = FinishedCell(run, digest, round(seconds, 3))
        path = self._folder / f"{key}.json"
        with writing(self._warehouse):
            write_text(
                path, orjson.dumps(asdict(cell)).decode(), partial(enter_file, self._warehouse)
            )
            (self._folder / f"{key}.run").unlink(missing_ok=True)
        return cell

    def find_begun(self, key: str) -> str | None:
        """Return the unfinished run of a cell, if it still exists."""
        path = self._folder / f"{key}.run"
        try:
            run = check_regular(path).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError):
            remedy = "remove it, and the cell starts again"
            raise WarehouseError(str(path), "cannot be read", remedy) from None
        header = place_of(self._warehouse, run) / "header.parquet"
        return run if header.is_file() else None

    def begin(self, key: str, run: str) -> None:
        """Record the run of a cell, so that a crash does not lose it."""
        with writing(self._warehouse):
            write_text(self._folder / f"{key}.run", run)

    @contextlib.contextmanager
    def alone(self, key: str) -> Iterator[None]:
        """Hold the lock of a cell; wait while another process or thread holds it."""
        with writing(self._warehouse):
            self._folder.mkdir(parents=True, exist_ok=True)
        with hold_lock(self._folder / f"{key}.lock"):
            for left_over in find_left_overs(self._folder, f"{key}.*"):
                left_over.unlink()
            yield
