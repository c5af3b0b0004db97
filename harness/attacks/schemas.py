"""Requests that Schemathesis draws from the API's schema, and what an answer must be."""

from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import CHECKS, load_all_checks

load_all_checks()
HELD = CHECKS.get_by_names(
    [
        *("not_a_server_error", "status_code_conformance"),
        *("content_type_conformance", "response_schema_conformance"),
    ]
)
"""Checks of an answer; the schema need not describe everything that is refused."""

ACCEPTED = (201, 202)


def cases(schema: Any) -> st.SearchStrategy[Case]:
    """Valid and invalid requests to all addresses of a schema; streams do not end."""
    ending = schema.exclude(path_regex="/stream$")
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    return st.one_of(*(ending.as_strategy(generation_mode=mode) for mode in modes))


def wrong(case: Case, answer: Response, new: int) -> Iterator[str]:
    """The problems of an answer, given the number of new entries."""
    what = f"{case.operation.label}: {answer.status_code}"
    try:
        case.validate_response(answer, checks=HELD)
    except BaseExceptionGroup as group:
        yield from (f"{what}: {error}" for error in group.exceptions)
    if "Traceback" in answer.text:
        yield f"{what}: a traceback"
    if new not in ((0, 1) if answer.status_code in ACCEPTED else (0,)):  # 0: a key that is known
        yield f"{what}: {new} new entries"
    if answer.status_code >= 400 and set(answer.json()) != {"place", "problem", "remedy"}:
        yield f"{what}: an error without its place, problem and remedy"
