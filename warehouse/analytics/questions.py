"""Queries on a warehouse: SQL over the views, and the recipes of the cookbook."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

import duckdb

from predictor.errors import InputError
from warehouse.analytics.catalog import create_views, seal
from warehouse.analytics.definitions import VIEWS, needed, read_twice
from warehouse.analytics.recipes import recipe
from warehouse.store.durable import first_line
from warehouse.store.folder import check_files, check_runs, check_warehouse, run_folder

if TYPE_CHECKING:
    import pandas as pd  # costs a second to import

Answer = TypeVar("Answer")

_MISTAKES = (
    duckdb.ParserException,
    duckdb.CatalogException,
    duckdb.BinderException,
    duckdb.ConversionException,
    duckdb.PermissionException,
)
"""What DuckDB raises for a wrong query; a damaged file raises something else."""


@dataclass(frozen=True)
class Analytics:
    """Read-only queries on a warehouse.

    Attributes:
        warehouse: The folder.
    """

    warehouse: Path

    def query(
        self, sql: str, runs: Sequence[str] | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a SELECT over the views, in memory: it locks nothing and blocks nobody.

        Args:
            sql: The query.
            runs: The runs that it sees, of which each has a round; all by default. What is
                asked of a few runs is answered much faster if the others are not read.

        Returns:
            Column names and rows.

        Raises:
            InputError: The query is wrong or is no SELECT, or there is no warehouse.
            WarehouseError: A file is damaged.
        """
        return self._ask(sql, lambda relation: (relation.columns, relation.fetchall()), runs)

    def frame(self, sql: str) -> "pd.DataFrame":
        """As `query`, but as a pandas data frame.

        Raises:
            InputError: The query is wrong or is no SELECT, or there is no warehouse.
            WarehouseError: A file is damaged.
        """
        frame: pd.DataFrame = self._ask(sql, lambda relation: relation.df())
        return frame

    def recipe(
        self, name: str, run: str | None = None, job: int | None = None
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Ask a question of the cookbook.

        Args:
            name: The recipe.
            run: The run that it is asked of; by default all, or the newest where the recipe is
                of one run.
            job: The job that it is asked of, where the recipe is of one job; else it chooses.

        Returns:
            Column names and rows.

        Raises:
            InputError: There is no such recipe, no such run, or no warehouse.
            WarehouseError: A file is damaged.
        """
        found = recipe(name)
        check_warehouse(self.warehouse)
        if run is None and found.of_one_run:
            newest = "SELECT run FROM runs ORDER BY created_at DESC, run DESC LIMIT 1"
            rows = self.query(newest)[1]
            run = rows[0][0] if rows else None
        # Before its first round nothing is to be seen of a run, and nothing can be left out.
        seen = run is not None and next(
            run_folder(self.warehouse, run).glob("round=*.parquet"), None
        )
        return self._ask(
            found.sql,
            lambda relation: (relation.columns, relation.fetchall()),
            [run] if run is not None and seen else None,
            {"run": run, "job": job},
        )

    def _ask(
        self,
        sql: str,
        read: Callable[[duckdb.DuckDBPyRelation], Answer],
        runs: Sequence[str] | None = None,
        variables: Mapping[str, str | int | None] | None = None,
        attempts: int = 6,
    ) -> Answer:
        check_warehouse(self.warehouse)
        check_runs(self.warehouse, runs)
        try:
            with contextlib.closing(duckdb.connect()) as connection:

                def work() -> Answer:
                    create_views(
                        connection, self.warehouse, runs, needed(sql), tables=read_twice(sql)
                    )
                    for name, value in (variables or {}).items():
                        connection.execute(f"SET VARIABLE {name} = $1", [value])
                    seal(connection, self.warehouse)
                    # This binds nothing but one pure SELECT.
                    connection.sql("FROM query($1)", params=[sql])
                    return read(connection.sql(sql))

                return interruptible(connection, work)
        except duckdb.Error as error:
            if isinstance(error, duckdb.IOException) and attempts > 1:
                time.sleep(0.05)  # a run is being compacted: its rounds' files go one by one
                return self._ask(sql, read, runs, variables, attempts - 1)
            if not isinstance(error, _MISTAKES):
                check_files(self.warehouse)
            raise InputError(
                "query", first_line(error), f"give one SELECT over {', '.join(VIEWS)}"
            ) from None


def interruptible(connection: duckdb.DuckDBPyConnection, work: Callable[[], Answer]) -> Answer:
    """Run a function on a connection so that an interruption ends its query.

    Python can only act on a signal between two steps of its main thread, and a query is
    one step; so it goes on in another.
    """
    answer: Future[Answer] = Future()

    def run() -> None:
        try:
            answer.set_result(work())
        except BaseException as error:
            answer.set_exception(error)

    try:
        Thread(target=run, daemon=True).start()
        return answer.result()
    except KeyboardInterrupt:
        while not wait([answer], timeout=0.05).done:  # the query may only be about to start
            connection.interrupt()
        raise
