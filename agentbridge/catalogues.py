"""Catalogues of products, as CSV or JSON."""

import csv
import io
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from agentbridge.readers import Line, Problem, Subjects, UnreadableError, WebAddress, decoded, described

FORMATS = {".csv", ".json"}
SHOWN_ERRORS = 5


def _as_amount(value: object) -> object:
    """An amount as Dutch spreadsheets write it, too: € 1.234,50."""
    if not isinstance(value, str):
        return value
    text = value.strip().removeprefix("€").strip()
    return text.replace(".", "").replace(",", ".") if "," in text else text or None


class ProductRow(BaseModel):
    model_config = ConfigDict(frozen=True)

    sku: Annotated[Line, Field(min_length=1, max_length=200)]
    name: Annotated[Line, Field(min_length=1)]
    category: Annotated[Line, Field(min_length=1)]
    description: Annotated[Line, Field(min_length=1)]
    norm: Line = ""
    url: WebAddress = ""
    price: Annotated[
        Annotated[Decimal, Field(ge=0, max_digits=10, decimal_places=2)] | None, BeforeValidator(_as_amount)
    ] = None
    currency: Annotated[str, BeforeValidator(lambda value: value or "EUR"), Field(pattern="^[A-Z]{3}$")] = "EUR"
    subjects: Subjects = []


def read_catalogue(name: str, data: bytes) -> list[ProductRow]:
    """Every product of the file, or none: a row that is not valid makes the file `UnreadableError`."""
    rows: dict[str, ProductRow] = {}
    errors = []
    for place, raw in _csv_rows(decoded(data)) if name.lower().endswith(".csv") else _json_rows(decoded(data)):
        try:
            row = ProductRow.model_validate(raw)
        except ValidationError as error:
            errors.append(f"{place}: {described(error)}")
            continue
        if row.sku in rows:
            errors.append(f"{place}: {row.sku} is there twice")
        rows[row.sku] = row
    if errors:
        more = [f"and {len(errors) - SHOWN_ERRORS} more"] if len(errors) > SHOWN_ERRORS else []
        raise UnreadableError(Problem.ROWS, "; ".join(errors[:SHOWN_ERRORS] + more))
    if not rows:
        raise UnreadableError(Problem.EMPTY)
    return list(rows.values())


def _csv_rows(text: str) -> Iterator[tuple[str, object]]:
    # Spreadsheets write what separates columns by the country they are in.
    delimiter = max(",;\t", key=text.partition("\n")[0].count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            yield (
                f"line {reader.line_num}",
                {re.sub(r"\W", "", name).lower(): value for name, value in row.items() if name},
            )
    except csv.Error as error:
        raise UnreadableError(Problem.BROKEN, str(error)) from error


def _json_rows(text: str) -> Iterator[tuple[str, object]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UnreadableError(Problem.BROKEN, str(error)) from error
    if isinstance(found, dict):
        found = found.get("products")
    if not isinstance(found, list):
        raise UnreadableError(Problem.ROWS, "neither a list of products nor {“products”: […]}")
    for number, row in enumerate(found, 1):
        yield f"product {number}", row
