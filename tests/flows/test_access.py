"""docs/access.md lists the answers to each role at each address, tried at API and page.

    STORE=1 python -m pytest tests/flows/test_access.py

writes its tables.
"""

import os
from pathlib import Path

from prefect.settings import (
    PREFECT_API_DATABASE_CONNECTION_URL,
    PREFECT_HOME,
    temporary_settings,
)

from flows.prefect_server.access import first_start
from tests.flows import test_api, test_live_page

PAGE = Path(__file__).parents[2] / "docs" / "access.md"
HEAD = """
| | | no token | reader | tenant `a` | tenant `c` | operator | the secret |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |
"""


def test_what_each_role_is_answered_is_in_the_docs() -> None:
    api = [
        (method, f"/v1{path}" + f" {body}" * bool(body), answers)
        for (method, path, body), answers in test_api.ACCESS.items()
    ]
    page = [(*asked, answers) for asked, answers in test_live_page.ACCESS.items()]
    whole = PAGE.read_text(encoding="utf-8").partition("\n## The API\n")[0]
    for title, rows in (("The API", api), ("The page", page)):
        whole += f"\n## {title}\n{HEAD}"
        for method, path, answers in rows:
            whole += f"| {method} | `{path}` | {' | '.join(map(str, answers))} |\n"
    if os.environ.get("STORE"):
        PAGE.write_text(whole, encoding="utf-8")
    assert whole == PAGE.read_text(encoding="utf-8"), "STORE=1 stores them"


def test_only_a_database_that_is_made_is_waited_for(tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    there.touch()
    remote = "postgresql+asyncpg://u:p@db:5432/prefect"
    with temporary_settings({PREFECT_HOME: tmp_path}):
        assert "first start" in first_start()
        assert first_start(remote) == first_start(f"sqlite+aiosqlite:///{there}") == ""
        assert "first start" in first_start(f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
        (tmp_path / "prefect.db").touch()
        assert first_start() == ""
    with temporary_settings({PREFECT_API_DATABASE_CONNECTION_URL: remote}):
        assert first_start() == ""
