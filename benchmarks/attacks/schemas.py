"""Requests that schemathesis draws from the API's schema, and malformed files of jobs.

    python -m benchmarks.attacks.schemas [--requests 1000] [--files 200] [--seed 0] [--json]

A service on a virtual cluster has a job that runs, and its API is reached over HTTP. Requests that
the schema allows and such that it does not are sent to it, by an operator, a tenant, a reader or
nobody. Each answer has to be one that the schema names for the address (status, type and content),
no 500, and without a traceback; and unless it says that something was accepted, the inbox has what
it had. Then mutated files of jobs are handed in by `shockwave submit`: each is taken, or refused in
a line, and nothing is new. `broken` counts what was otherwise. Exit code 1 if it is not 0.
"""

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from socket import create_connection
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode, Response
from schemathesis.checks import CHECKS, load_all_checks

from benchmarks.attacks import commands
from benchmarks.attacks.kills import forked
from benchmarks.attacks.mutations import TEXT
from benchmarks.attacks.promises import in_inbox
from benchmarks.attacks.service_kills import LONG, OPTIONS
from benchmarks.attacks.specimens import TEXT_FILES
from benchmarks.soak.hands import declared
from benchmarks.soak.place import Gauge, Place, server
from benchmarks.soak.processes import children
from flows.cli.output import print_table
from flows.scheduler.scheduler import open_run, schedule
from harness.waiting import wait_for
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.tokens import Role, Tokens

load_all_checks()
HELD = CHECKS.get_by_names(
    [
        *("not_a_server_error", "status_code_conformance"),
        *("content_type_conformance", "response_schema_conformance"),
    ]
)
"""Checks of an answer; the schema need not describe everything that is refused."""

ACCEPTED = (201, 202)
JOBS = ("declared.toml", "opaque.toml")


def cases(schema: Any) -> st.SearchStrategy[Case]:
    """Valid and invalid requests to all addresses of a schema; none is a stream."""
    ending = schema.exclude(path_regex="/stream$")
    modes = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    drawn = st.one_of(*(ending.as_strategy(generation_mode=mode) for mode in modes))
    return drawn


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


def furnish(warehouse: Path) -> dict[str, str]:
    """A service with a job that runs; returns the headers of each caller."""
    with Inbox(warehouse) as inbox, open_run(warehouse, inbox, OPTIONS) as run:
        inbox.submit(LONG)
        inbox.submit(replace(LONG, tenant="b"))
        schedule(run, warehouse, rounds=2)
    with Tokens(warehouse) as tokens:
        made = {
            "operator": tokens.add("olga", Role.OPERATOR),
            "tenant": tokens.add("ann", Role.TENANT, "a"),
            "reader": tokens.add("rita", Role.READER),
        }
    return {"nobody": ""} | {name: f"Bearer {token}" for name, token in made.items()}


def listens(place: Place) -> bool:
    with suppress(OSError), create_connection(("127.0.0.1", place.port)):
        return True
    return False


def requests(place: Place, callers: dict[str, str], count: int, drawn_from: int) -> Counter[str]:
    """Send requests; returns how many were sent, accepted, and answered wrongly."""
    url, counts = f"http://127.0.0.1:{place.port}/v1/openapi.json", Counter[str]()
    schema = schemathesis.openapi.from_url(url)

    @seed(drawn_from)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[*HealthCheck],
    )
    @given(case=cases(schema), who=st.sampled_from(["operator", "operator", *callers]))
    def send(case: Case, who: str) -> None:
        before = len(in_inbox(place.warehouse))
        given = {"Authorization": callers[who]} if callers[who] else {}
        answer = case.call(headers=given, timeout=commands.BUSY_SECONDS)
        new = len(in_inbox(place.warehouse)) - before
        problems = [*wrong(case, answer, new)]
        for problem in problems[:1]:
            print(problem, file=sys.stderr)
        accepted = answer.status_code in ACCEPTED
        counts.update({"requests": 1, "accepted": accepted, "broken": bool(problems)})

    send()
    return counts


def files(place: Place, count: int, drawn_from: int) -> Counter[str]:
    """Hand in malformed files of jobs; returns counts of accepted, refused and broken ones."""
    counts, folder = Counter[str](), place.warehouse.parent
    commands.isolated(folder / "home")
    commands.warm()
    for at in range(count):
        rng = Random(f"{drawn_from} {at}")
        data = TEXT_FILES[rng.choice(JOBS)].encode()
        (file := folder / "job.toml").write_bytes(rng.choice(TEXT)(data, rng))
        before = len(in_inbox(place.warehouse))
        asked = ("submit", file, "--warehouse", place.warehouse)
        ended = commands.forked(
            lambda asked=asked: commands.called(asked),  # type: ignore[misc]
            folder / "said",
            commands.BUSY_SECONDS,
        )
        new = len(in_inbox(place.warehouse)) - before
        held = ended.verdict == ("accepted" if new else "refused")
        if not held:
            print(f"file {at}: {ended.verdict}, {new} new entries\n{ended.err}", file=sys.stderr)
        counts.update({"files": 1, "taken": bool(new), "broken": not held})
    return counts


def main() -> int:
    options = parse()
    with tempfile.TemporaryDirectory() as folder:
        warehouse = Path(folder) / "warehouse"
        callers = forked(lambda: furnish(warehouse))
        place = Place(warehouse, OPTIONS, Gauge(), options.seed, "", OPTIONS.gpus, declared)
        counts = Counter(forked(lambda: files(place, options.files, options.seed)))
        with children({"api": lambda: server(place)}) as started:
            started.start("api")
            wait_for(lambda: listens(place))
            counts.update(requests(place, callers, options.requests, options.seed))
    figures = {name: counts[name] for name in ("requests", "accepted", "files", "taken", "broken")}
    if options.json:
        print(json.dumps(figures))
    else:
        print_table([*figures], [[*map(str, figures.values())]])
    return bool(figures["broken"]) or not (figures["accepted"] and figures["files"])


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
