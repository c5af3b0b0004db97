"""TOML files; errors name the file and the field."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import GenericAlias
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from predictor.errors import InputError, meant
from warehouse.workloads.opening import check_is_file

Model = TypeVar("Model", bound=BaseModel)

_LOWER_CASE = "[a-z0-9]([a-z0-9.-]*[a-z0-9])?"

LOWER_CASE = f"^{_LOWER_CASE}$"
"""Pattern of names of lower-case letters, digits, dots and dashes."""

LOWER_CASE_OR_EMPTY = f"^({_LOWER_CASE})?$"
"""The pattern `LOWER_CASE`, or empty."""

_IN_WORDS = {
    LOWER_CASE: "give lower-case letters, digits, dots and dashes, a letter or digit at both ends"
}
"""Remedies for patterns of fields."""


def read_toml(path: Path, needed: str) -> dict[str, Any]:
    """Read a TOML file; errors describe the `needed` file.

    Raises:
        InputError: The file cannot be read, or is no TOML.
    """
    try:
        check_is_file(path, needed)
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        problem = "is nested too deeply to be read"
        raise InputError(str(path), problem, f"give {needed}") from None
    except OSError as error:
        raise InputError(str(path), str(error.strerror), f"give {needed}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is not TOML ({error})", "correct that line") from None


def validate_fields(
    path: Path | str,
    model: type[Model],
    fields: Mapping[str, Any] | Model,
    what: str,
    *,
    strict: bool | None = None,
) -> Model:
    """Validate the fields of a file with its model; errors call the model `what`.

    An instance of the model is returned unchanged. `strict` refuses values of other types instead
    of converting them; by default the model decides.

    Raises:
        InputError: A field is invalid; the error names the first one.
    """
    try:
        return model.model_validate(fields, strict=strict)
    except ValidationError as error:
        raise make_input_error(str(path), error.errors()[0], model, what) from None


def make_input_error(
    path: str, first: Mapping[str, Any], model: type[BaseModel], what: str
) -> InputError:
    """Convert one of pydantic's errors to an `InputError`; see `validate_fields`."""
    parts = first["loc"]
    place = f"{path}: {_field(parts)}" if parts else path
    if first["type"] == "extra_forbidden":
        known = _fields(model, parts[:-1])
        return InputError(place, f"is not a field of {what}", meant(str(parts[-1]), known))
    if first["type"] == "missing":
        return InputError(place, "is missing", "add it")
    if first["type"] == "value_error":
        problem, _, remedy = str(first["ctx"]["error"]).partition("; ")
        field, named, what_of_it = problem.partition(": ")
        if named and field in model.model_fields:
            place, problem = f"{place}: {field}", what_of_it
        return InputError(place, problem, remedy or "correct it")
    said = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] in ("tuple_type", "list_type"):
        said = "give a list: values in brackets, separated by commas"
    if first["type"] == "string_pattern_mismatch":
        said = _IN_WORDS.get(first["ctx"]["pattern"], said)
    return InputError(place, f"{first['input']!r} is refused", said)


def _field(parts: tuple[int | str, ...]) -> str:
    """Return the path of a field, such as `workloads[1].jobs`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)
    return text.removeprefix(".")


def _fields(model: type[BaseModel], parts: tuple[int | str, ...]) -> list[str]:
    for part in parts:
        if isinstance(part, str) and part in model.model_fields:
            model = _model(model.model_fields[part].annotation)
    return list(model.model_fields)


def _model(annotation: Any) -> type[BaseModel]:
    if isinstance(annotation, GenericAlias):
        annotation = get_args(annotation)[0]
    model: type[BaseModel] = annotation
    return model
