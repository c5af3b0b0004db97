"""Metrics of a service; dashboard and docs name exactly these."""

import json
import re
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, get_type_hints

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models import units
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client.parser import text_string_to_metric_families
from pydantic import ConfigDict, TypeAdapter

from flows.api.commands import ServiceCommands
from flows.api.metrics import export_metrics
from predictor.throughput import UNTYPED
from tests.flows.test_scheduler import JOB, go
from warehouse.analytics.questions import Analytics

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "shockwave.json"
NAME = re.compile(r"shockwave_\w+")


def figures(commands: ServiceCommands, now: float) -> dict[tuple[str, str], float]:
    """Values by name and label."""
    text = export_metrics(commands, now).decode()
    samples = (s for family in text_string_to_metric_families(text) for s in family.samples)
    return {(s.name, "".join(s.labels.values())): s.value for s in samples}


@pytest.mark.slow
def test_metrics_say_where_the_service_stands(tmp_path: Path) -> None:
    go(
        tmp_path,
        1,
        jobs=[replace(JOB, epochs=4000, total_steps=0), replace(JOB, epochs=1, total_steps=0)],
    )
    with ServiceCommands(tmp_path) as commands:
        go(tmp_path, 1)
        (waits,) = commands.submit(JOB)
        found = figures(commands, waits.accepted_at + 7.0)
        status = commands.get_status()
        (worst,) = (row.rho for row in commands.list_queue() if row.rho is not None)
    assert found["shockwave_rounds_total", ""] == 2
    assert (found["shockwave_gpus", ""], found["shockwave_busy_gpus", ""]) == (4, status.busy_gpus)
    assert (found["shockwave_jobs", "running"], found["shockwave_jobs", "waiting"]) == (1, 0)
    assert found["shockwave_jobs_ended_total", ""] == 1
    assert found["shockwave_container_ends_total", "finished"] == 1
    assert found["shockwave_inbox_entries_total", ""] == 3
    assert found["shockwave_inbox_pending", ""] == 1
    assert abs(found["shockwave_inbox_lag_seconds", ""] - 7.0) < 1e-3
    assert found["shockwave_rho", "1"] == worst
    assert found["shockwave_tenant_gpus", JOB.tenant] == status.busy_gpus
    assert found["shockwave_tenant_gpu_seconds_total", JOB.tenant] == pytest.approx(
        found["shockwave_gpu_seconds_total", ""]
    )
    nodes = [found["shockwave_node_busy_gpus", f"{UNTYPED}{node}"] for node in range(4)]
    assert sum(nodes) == status.busy_gpus
    assert found["shockwave_node_gpus", f"{UNTYPED}0"] == 1
    steps = {label for name, label in found if name == "shockwave_step_seconds"}
    assert steps == {"collect", "predict", "solve", "dispatch"}
    names = {name for name, _ in found}
    board = json.loads(DASHBOARD.read_text())
    shown = {
        name
        for panel in board["panels"]
        for target in panel["targets"]
        for name in NAME.findall(target["expr"])
    }
    assert shown == names
    page = (ROOT / "docs" / "service.md").read_text()
    section = page.partition("## Metrics")[2].partition("\n## ")[0]
    assert {*NAME.findall(section)} == names


def kept(given: Any, read: Any) -> Any:
    """The content of a model without the defaults that it adds."""
    if isinstance(given, dict):
        return {name: kept(value, read[name]) for name, value in given.items() if name in read}
    if isinstance(given, list):
        return [kept(*pair) for pair in zip(given, read, strict=True)]
    return read


def mistyped(model: Any) -> list[str]:
    """Attributes that a model of Grafana's, or one within it, has of another type than it says."""
    if isinstance(model, list):
        return [found for each in model for found in mistyped(each)]
    if not hasattr(model, "to_json"):
        return []
    found = []
    for name, hint in get_type_hints(type(model)).items():
        value = getattr(model, name)
        adapter = TypeAdapter[Any](hint, config=ConfigDict(arbitrary_types_allowed=True))
        try:
            as_typed = adapter.validate_python(value)
        except ValueError:
            as_typed = None
        found += [name] if as_typed != value else mistyped(value)
    return found


def read_by_grafana(board: dict[str, Any]) -> Dashboard:
    """A dashboard as Grafana's own models have it; fails where they lack or mistype anything."""
    register_default_plugins()
    read = Dashboard.from_json(board)
    assert kept(board, json.loads(JSONEncoder().encode(read))) == board
    assert mistyped(read) == []
    return read


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    board = json.loads(DASHBOARD.read_text())
    read_by_grafana(board)
    assert board["schemaVersion"] >= 36  # data sources by type and uid
    panels = board["panels"]
    known = [unit for unit in vars(units).values() if isinstance(unit, str)]
    assert all(panel["fieldConfig"]["defaults"]["unit"] in known for panel in panels)
    assert [panel["id"] for panel in panels] == [*range(1, len(panels) + 1)]
    places = [tuple(panel["gridPos"][side] for side in "xy") for panel in panels]
    assert len({*places}) == len(places)
    assert all(
        x + panel["gridPos"]["w"] <= 24 for (x, _), panel in zip(places, panels, strict=True)
    )
    (source,) = board["templating"]["list"]
    for panel in panels:
        assert panel["datasource"] == {"type": "prometheus", "uid": f"${{{source['name']}}}"}
        refs = [target["refId"] for target in panel["targets"]]
        assert refs == sorted({*refs})


@pytest.mark.slow
def test_rho_over_time_is_that_of_the_marts(tmp_path: Path) -> None:
    quick = replace(JOB, epochs=3, total_steps=3_000)
    go(tmp_path, 1, jobs=[replace(quick, name=f"job-{n}") for n in range(5)])
    with ServiceCommands(tmp_path) as commands:
        while commands.get_status().ended < 4:
            go(tmp_path, 1)
        rows = commands.list_usage()
        run = commands.run
    asked = f"SELECT rho FROM job_outcomes WHERE run = '{run}' AND rho IS NOT NULL"
    known = [rho for (rho,) in Analytics(tmp_path).query(asked)[1]]
    assert len(known) >= 2
    assert (rows[0].rho, rows[0].worst_rho) == (None, None)
    assert rows[-1].rho == pytest.approx(median(known), abs=1e-3)  # SQL rounds
    assert rows[-1].worst_rho == pytest.approx(max(known), abs=1e-3)
