"""Campaigns as TOML files."""

from pathlib import Path
from typing import Any

from flows.campaigns.plan import CampaignPlan
from flows.runs.toml_file import read_toml, validate_fields
from predictor.errors import InputError
from predictor.plugins import Kind, plugins

FILES = ("trace", "profile", "throughputs", "regimes")
"""Fields of a workload that hold paths, relative to the campaign's file."""


def read_campaign(path: Path) -> CampaignPlan:
    """Read a campaign.

    Raises:
        InputError: The file is missing or no TOML, or a field is invalid; the error names the
            file and the field.
    """
    fields = read_toml(path, "a campaign's TOML file")
    _resolve_files(path, fields)
    return validate_fields(path, CampaignPlan, fields, "a campaign")


def _resolve_files(path: Path, fields: dict[str, Any]) -> None:
    """Resolve paths relative to the folder of the campaign's file; refuse missing files."""
    workloads = fields.get("workloads")
    for number, workload in enumerate(workloads if isinstance(workloads, list) else ()):
        for field in FILES:
            if isinstance(workload, dict) and isinstance(workload.get(field), str):
                named = field in ("profile", "throughputs")
                if named and workload[field] in plugins(Kind.THROUGHPUTS):
                    continue
                file = (path.parent / workload[field]).resolve()
                if not file.is_file():
                    raise InputError(
                        f"{path}: workloads[{number}].{field}",
                        f"there is no file {file}",
                        "paths start from the folder of the campaign's file",
                    )
                workload[field] = str(file)
