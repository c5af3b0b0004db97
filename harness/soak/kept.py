"""Checks of a service's promises against its inbox and its records after a soak."""

import sys

from harness.attacks import promises
from harness.soak.place import Place
from warehouse.inbox.inbox import Inbox
from warehouse.store.folder import name_of, run_folders
from warehouse.store.parts import round_files
from warehouse.store.reader import Reader

BAD = ("lost", "not_once", "without_effect", "gaps", "unclean", "differs")


def kept(place: Place) -> dict[str, int]:
    """How often what was promised was not kept, and what there was to be kept."""
    from flows.explain.replay import replay
    from warehouse.store.warehouse_audit import audit_all

    warehouse, acknowledged = place.warehouse, place.acknowledged()
    with Inbox(warehouse, place.url) as inbox:
        run = inbox.run
    unknown = {*promises.in_inbox(warehouse, place.url)} - {*acknowledged}
    records = [record for record, _ in Reader(warehouse).records(run)]
    broken = {
        "lost": [
            *promises.lost(warehouse, acknowledged, place.url),
            *(f"{entry} was not acknowledged" for entry in unknown),
        ],
        "not_once": promises.not_once(warehouse, run, place.url, all_taken=True),
        "without_effect": promises.without_effect(warehouse, run, all_ended=True),
        "gaps": [at for at, record in enumerate(records) if record.round != at],
        "unclean": audit_all(warehouse).findings,
        "differs": replay(run, warehouse).differences,
    }
    problems_of = {name: [*map(str, problems)] for name, problems in broken.items()}
    for name, problems in problems_of.items():
        for problem in problems[:3]:
            print(f"{name}: {problem}", file=sys.stderr)
    (folder,) = (folder for folder in run_folders(warehouse) if name_of(folder) == run)
    return {
        "rounds": len(records),
        "parts": len(round_files(folder)),
        "jobs": sum(len(record.arrivals) for record in records),
        "commands": sum(len(record.commands) for record in records),
        "preempted": sum(e.kind == "preempted" for record in records for e in record.events),
        "crashed": sum(e.kind == "crashed" for record in records for e in record.finished),
        **{name: len(problems) for name, problems in problems_of.items()},
    }
