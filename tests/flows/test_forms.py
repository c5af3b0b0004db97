"""`docs/prefect.md` has every field of every deployment's form, as Prefect draws it."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from flows.deployments.deployments import read_deployments

PAGE = (Path(__file__).parents[2] / "docs" / "prefect.md").read_text(encoding="utf-8")
SHARED = "warehouse"
"""A field of all forms, whose default is the option of `shockwave up`."""


def rows_of(deployment: Any) -> list[str]:
    """The lines of a deployment's table, from the schema that Prefect checks."""
    module, _, function = deployment.entrypoint.rpartition(".")
    schema = getattr(import_module(module), function).parameters.model_dump_for_openapi()
    models, asked = schema.get("definitions", {}), schema
    if "form" in schema["properties"]:
        asked = models[schema["properties"]["form"]["$ref"].rpartition("/")[2]]
    return [
        f"| `{name}` | {_default(name, field, asked)} | {_bounds(field, models)} "
        f"| {_meaning(field, models)} |"
        for name, field in asked["properties"].items()
        if name != SHARED
    ]


def _meaning(field: dict[str, Any], models: dict[str, Any]) -> str:
    found: str = field.get("description") or _of(field, models)["description"]
    return found.partition("\n")[0]


def _of(field: dict[str, Any], models: dict[str, Any]) -> dict[str, Any]:
    """What a field refers to."""
    field = field.get("allOf", [field])[0]
    found: dict[str, Any] = models[field["$ref"].rpartition("/")[2]] if "$ref" in field else field
    return found


def _default(name: str, field: dict[str, Any], asked: dict[str, Any]) -> str:
    if name in asked.get("required", []):
        return "required"
    value = field.get("default")
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "empty" if value in (None, "") else f"{value:,g}" if type(value) is float else f"{value}"


def _bounds(field: dict[str, Any], models: dict[str, Any]) -> str:
    if "anyOf" in field:
        field = next(choice for choice in field["anyOf"] if choice.get("type") != "null")
    field = _of(field, models)
    if "enum" in field:
        return ", ".join(f"`{choice}`" for choice in field["enum"])
    bounds = [
        f"{word} {_number(field[bound])}"
        for bound, word in (
            ("exclusiveMinimum", "above"),
            ("minimum", "at least"),
            ("maximum", "at most"),
        )
        if bound in field
    ]
    if field.get("type") == "string" and field.get("minLength"):
        bounds = [f"{field['minLength']} to {field['maxLength']} characters"]
    elif "maxLength" in field:
        bounds = [f"at most {field['maxLength']} characters"]
    kind = {"boolean": "yes or no", "object": "[a campaign](campaigns.md#the-file)"}
    return ", ".join(bounds) or kind.get(field["type"], "any")


def _number(bound: float) -> str:
    return f"{int(bound):,}"


@pytest.mark.parametrize("deployment", read_deployments(), ids=lambda deployment: deployment.name)
def test_every_field_is_there_as_prefect_draws_it(deployment: Any) -> None:
    _, found, rest = PAGE.partition(f"\n### {deployment.name}\n")
    assert found
    section = re.split(r"^##", rest, maxsplit=1, flags=re.MULTILINE)[0]
    assert re.findall(r"^\| `.*$", section, re.MULTILINE) == rows_of(deployment)
