"""The first start of a server says that it makes its database."""

from pathlib import Path

from prefect.settings import (
    PREFECT_API_DATABASE_CONNECTION_URL,
    PREFECT_HOME,
    temporary_settings,
)

from flows.prefect_server.access import describe_first_start


def test_only_a_database_that_is_made_is_waited_for(tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    there.touch()
    remote = "postgresql+asyncpg://u:p@db:5432/prefect"
    with temporary_settings({PREFECT_HOME: tmp_path}):
        assert "first start" in describe_first_start()
        assert (
            describe_first_start(remote)
            == describe_first_start(f"sqlite+aiosqlite:///{there}")
            == ""
        )
        assert "first start" in describe_first_start(f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
        (tmp_path / "prefect.db").touch()
        assert describe_first_start() == ""
    with temporary_settings({PREFECT_API_DATABASE_CONNECTION_URL: remote}):
        assert describe_first_start() == ""
