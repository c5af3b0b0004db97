"""All waiting submissions are accepted in one transaction, with few statements."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, event

from predictor.errors import InputError
from tests.warehouse.test_inbox import JOB
from warehouse.inbox.accepting import accept_all
from warehouse.inbox.database import Database
from warehouse.inbox.entries import SUBMIT, Entry, Submission


def together(
    database: Database, *asked: list[Submission]
) -> tuple[list[list[Entry] | InputError], int]:
    """The answer to each submitter, and the statements that it took."""
    statements = list[str]()

    def work(connection: Connection) -> list[list[Entry] | InputError]:
        def executed(on: Any, cursor: Any, statement: str, *rest: Any) -> None:
            statements.append(statement)

        event.listen(connection, "before_cursor_execute", executed)
        return accept_all(connection, asked)

    return database.write(work), len(statements)


def test_the_number_of_statements_does_not_grow(tmp_path: Path) -> None:
    database = Database(tmp_path / "inbox.sqlite")
    _, of_one = together(database, [Submission(SUBMIT, JOB, key="alone")])
    _, of_many = together(database, *([Submission(SUBMIT, JOB, key=f"{at}")] for at in range(50)))
    assert of_one == of_many == 3
    database.close()


def test_a_key_submitted_twice_is_one_entry(tmp_path: Path) -> None:
    database = Database(tmp_path / "inbox.sqlite")
    same, other = (
        Submission(SUBMIT, JOB, key="k"),
        Submission(SUBMIT, replace(JOB, tenant="b"), key="k"),
    )
    (first, again, refused, after), _ = together(
        database, [same], [same], [other], [replace(same, key="")]
    )
    assert first == again
    assert isinstance(refused, InputError)
    assert isinstance(after, list)
    assert after[0].number == 2
    database.close()


def test_a_refused_batch_leaves_neither_numbers_nor_keys(tmp_path: Path) -> None:
    database = Database(tmp_path / "inbox.sqlite")
    new, taken = Submission(SUBMIT, JOB, key="new"), Submission(SUBMIT, JOB, key="taken")
    wrong = replace(taken, job=replace(JOB, tenant="b"))
    (_, refused, found), _ = together(database, [taken], [new, wrong], [new])
    assert isinstance(refused, InputError)
    assert isinstance(found, list)
    assert found[0].number == 2
    database.close()
