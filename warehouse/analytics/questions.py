"""Queries on a warehouse: SQL over the views, and the recipes of the cookbook."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from predictor.errors import InputError, WarehouseError, first_line, remedy_of
from warehouse.analytics.catalog import are_all_copied, create_views, seal
from warehouse.analytics.copies import read_copies
from warehouse.analytics.definitions import VIEWS, find_needed, find_read_twice, find_views
from warehouse.analytics.limits import (
    UNLIMITED,
    QueryLimits,
    connect,
    run_interruptible,
    too_little_memory,
)
from warehouse.analytics.pinned import pin_files
from warehouse.analytics.recipes import recipe
from warehouse.analytics.verifying import start_verification
from warehouse.store.checks import check_files, check_runs, check_warehouse
from warehouse.store.folder import name_of, run_folder, run_folders

if TYPE_CHECKING:
    import pandas as pd  # a second of imports
    import pyarrow as pa

Answer = TypeVar("Answer")

ATTEMPTS = 3
"""Attempts to read files, the second and third with links to them (`pin_files`)."""


def fetch_rows(
    connection: duckdb.DuckDBPyConnection, sql: str
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Return column names and rows of a query. DuckDB would plan a relation twice."""
    asked = connection.execute(sql)
    return [column for column, *_ in asked.description or ()], asked.fetchall()


_MISTAKES = (
    duckdb.ParserException,
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.ConversionException,
    duckdb.PermissionException,
)
"""DuckDB's exceptions for a wrong query; damaged files raise others."""


@dataclass(frozen=True)
class Analytics:
    """Read-only queries on a warehouse.

    Raises:
        InputError: A query is wrong or no SELECT, or there is no such run, recipe or warehouse.
        WarehouseError: A file is damaged.
    """

    warehouse: Path
    limits: QueryLimits = UNLIMITED

    def query(
        self, sql: str, runs: Sequence[str] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a SELECT over the views, without locks; return column names and rows.

        Args:
            sql: The query.
            runs: The runs in the views, each with at least one round; by default all. Naming a few
                runs makes their queries much faster.
        """
        return self._ask(sql, fetch_rows, runs)

    def queries(
        self, asked: Sequence[str], runs: Sequence[str] | None = None
    ) -> list[tuple[list[str], list[tuple[Any, ...]]]]:
        """Run several SELECTs as `query` does, over the same views.

        This is faster than single queries, because shared views are computed once. All queries see
        the same rounds of a run that is still going.
        """
        return self._ask_all(asked, fetch_rows, runs)

    def frame(self, sql: str, runs: Sequence[str] | None = None) -> "pd.DataFrame":
        """Run a SELECT as `query` does; return a pandas data frame."""
        frame: pd.DataFrame = self._ask(
            sql, lambda connection, asked: connection.execute(asked).df(), runs
        )
        return frame

    def table(self, sql: str, runs: Sequence[str] | None = None) -> "pa.Table":
        """Run a SELECT as `query` does; return an Arrow table."""
        return self._ask(
            sql, lambda connection, asked: connection.sql(asked).to_arrow_table(), runs
        )

    def recipe(
        self, name: str, run: str | None = None, job: int | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a recipe of the cookbook; return column names and rows.

        Args:
            name: The recipe.
            run: The run. By default, the newest run if the recipe is about a single run, and
                otherwise all runs, counting identical runs once.
            job: The job, for a recipe of a single job; by default, the recipe chooses it.
        """
        found = recipe(name)
        if job is not None and not found.of_one_job:
            raise InputError("job", f"the recipe {name} is of no single job", "leave it out")
        check_warehouse(self.warehouse)
        if run is None and found.of_one_run:
            run = self.newest_run()
        # A run without rounds is in no view, so it cannot be selected.
        seen = run is not None and next(
            run_folder(self.warehouse, run).glob("round=*.parquet"), None
        )
        if job is not None and seen and run is not None:
            self._check_job(run, job)
        return self._ask(
            found.sql,
            fetch_rows,
            [run] if run is not None and seen else None if found.of_every_run else self._once(),
            {"run": run, "job": job},
        )

    def newest_run(self) -> str | None:
        """Return the run that was created last; None in an empty warehouse."""
        rows = self.query("SELECT run FROM runs ORDER BY created_at DESC, run DESC LIMIT 1")[1]
        return rows[0][0] if rows else None

    def _check_job(self, run: str, job: int) -> None:
        if not self.query(f"SELECT 1 FROM jobs WHERE job_id = {job}", [run])[1]:
            raise InputError(f"job {job}", f"is not in run {run!r}", "name one of its jobs")

    def _once(self) -> list[str] | None:
        """Return the runs, only the newest of identical ones; None if no runs are identical."""
        names = (name_of(folder) for folder in run_folders(self.warehouse))
        # A stem has the header's hash, so identical runs share it.
        stems = Counter(name.rpartition("-")[0] for name in names)
        if max(stems.values(), default=0) < 2:
            return None
        same = "PARTITION BY first_hash, last_hash ORDER BY created_at DESC, run DESC"
        once = f"SELECT run FROM runs QUALIFY NOT complete OR row_number() OVER ({same}) = 1"
        return sorted(run for (run,) in self.query(once)[1])

    def _ask(
        self,
        sql: str,
        read: Callable[[duckdb.DuckDBPyConnection, str], Answer],
        runs: Sequence[str] | None = None,
        variables: Mapping[str, str | int | None] | None = None,
    ) -> Answer:
        (answer,) = self._ask_all([sql], read, runs, variables)
        return answer

    def _ask_all(
        self,
        asked: Sequence[str],
        read: Callable[[duckdb.DuckDBPyConnection, str], Answer],
        runs: Sequence[str] | None = None,
        variables: Mapping[str, str | int | None] | None = None,
        attempts: int = ATTEMPTS,
    ) -> list[Answer]:
        check_warehouse(self.warehouse)
        check_runs(self.warehouse, runs)
        ended = Event()
        try:
            # Who met a file that a writer has removed since repeats with files that stay.
            again = attempts < ATTEMPTS
            pinned = pin_files(self.warehouse, runs) if again else nullcontext(self.warehouse)
            with pinned as place, connect(self.warehouse, self.limits) as connection:

                def work() -> list[Answer]:
                    copies, seen = read_copies(self.warehouse), find_views(connection, asked)
                    verified = start_verification(self.warehouse, runs, seen, copies, ended)
                    copied = are_all_copied(self.warehouse, runs, copies)
                    names, tables = (
                        find_needed(seen, copied=copied),
                        find_read_twice("\n".join(asked)),
                    )
                    create_views(
                        *(connection, place, runs, names),
                        asked=find_needed(seen, copied=True),
                        tables=tables,
                        if_small={*names} - {"records"},  # queries read little of them
                        copies=copies,
                    )
                    for name, value in (variables or {}).items():
                        connection.execute(f"SET VARIABLE {name} = $1", [value])
                    seal(connection, self.warehouse, place)
                    for sql in asked:
                        # Binding fails for everything but a single SELECT.
                        connection.sql("FROM query($1)", params=[sql])
                    verified()
                    return [read(connection, sql) for sql in asked]

                return run_interruptible(connection, work, self.limits.seconds, ended)
        except duckdb.OutOfMemoryException as error:
            raise too_little_memory(error) from None
        except duckdb.Error as error:
            if isinstance(error, duckdb.IOException) and attempts > 1:
                return self._ask_all(asked, read, runs, variables, attempts - 1)
            if not isinstance(error, _MISTAKES):
                check_files(self.warehouse)
            if isinstance(error, duckdb.IOException):
                remedy = remedy_of(error, "let its files be read; shockwave run audit says more")
                problem = f"cannot be read ({first_line(error)})"
                raise WarehouseError(str(self.warehouse), problem, remedy) from None
            alike = re.search('Did you mean "(.+?)"', str(error))  # may be a table of DuckDB's own
            question = f"did you mean {alike[1]}? " if alike and alike[1] in VIEWS else ""
            remedy = f"{question}give one SELECT over {', '.join(VIEWS)}"
            raise InputError("query", first_line(error), remedy) from None
        finally:
            ended.set()
