"""Seeded mutations of files of any format: of bytes, texts, JSON, Parquet rows and databases."""

import gzip
import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from harness.attacks.edits import noted

Mutation = Callable[[bytes, Random], bytes]

NUMBERS = (
    *("0", "-0", "-1", "1", "1.5", "1e308", "1e400", "-1e400", "nan", "NaN", "inf", "-Infinity"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775809", "1e-320", "0x10"),
    *("9007199254740993", "1000000", "999999999999", "1_000", "٣", "1,5", "", " ", "true", "null"),
)
TEXTS = (
    *("", " ", "..", "../../x", "/", "a" * 300, "x" * 70_000, "%s", "{0}", "{x}", "$HOME", "`id`"),
    *("'; DROP TABLE runs; --", '"', "'", "\\", "\t", "\n", "\r\n", "\x00", "\x1b[31m", "\u202e"),
    *(
        "é",
        "日本",
        "\ud800",
        "\U0010ffff",
        "NaN",
        "None",
        "null",
        "-1",
        "*",
        "?",
        "run=x",
        "a,b;c=d",
    ),
)
NEST = 3_000
"""Depth of nesting, above the limits of parsers that recurse."""


# Bytes


def flipped(data: bytes, rng: Random) -> bytes:
    """Some bits flipped."""
    content = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    return bytes(content)


def cut(data: bytes, rng: Random) -> bytes:
    """The end cut off."""
    return data[: rng.randrange(len(data))]


def grown(data: bytes, rng: Random) -> bytes:
    """Bytes inserted."""
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.randbytes(rng.randint(1, 40)) + data[at:]


def shrunk(data: bytes, rng: Random) -> bytes:
    """A part left out."""
    first, last = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:first] + data[last:]


def doubled(data: bytes, rng: Random) -> bytes:
    """A part twice."""
    first, last = sorted(rng.randrange(len(data) + 1) for _ in range(2))
    return data[:last] + data[first:]


def odd(data: bytes, rng: Random) -> bytes:
    """Empty, other content, or another encoding."""
    text = data.decode(errors="replace")
    return rng.choice(
        [
            *(b"", b"\n", b"\x00" * 100, b"PAR1", b"[" * NEST, b"{", rng.randbytes(200)),
            *(text.encode("utf-16"), b"\xef\xbb\xbf" + data, data.replace(b"\n", b"\r\n")),
            *(data.replace(b"\n", b""), data * 3, b"\xff\xfe" + data, data.replace(b"a", b"\xe9")),
        ]
    )


BYTES: tuple[Mutation, ...] = (flipped, cut, grown, shrunk, doubled, odd)


# Texts


def token(data: bytes, rng: Random) -> bytes:
    """A number or a text replaced."""
    text = data.decode(errors="surrogateescape")
    matches = list(re.finditer(r"-?\d+(\.\d+)?(e[-+]?\d+)?|[A-Za-z][\w-]*", text))
    if not matches:
        return odd(data, rng)
    match = rng.choice(matches)
    value = rng.choice(NUMBERS + TEXTS)
    return (text[: match.start()] + value + text[match.end() :]).encode(errors="surrogatepass")


def line(data: bytes, rng: Random) -> bytes:
    """A line twice, moved, gone, or with a field more or less."""
    lines = data.split(b"\n")
    at, to = rng.randrange(len(lines)), rng.randrange(len(lines))
    match rng.randrange(5):
        case 0:
            lines.insert(to, lines[at])
        case 1:
            lines.insert(to, lines.pop(at))
        case 2:
            del lines[at]
        case 3:
            lines[at] += rng.choice([b",", b"\t", b";", b",1", b"\tx", b"=", b"#"])
        case _:
            parts = re.split(rb"([,\t=])", lines[at])
            del parts[rng.randrange(len(parts))]
            lines[at] = b"".join(parts)
    return b"\n".join(lines)


def nested(data: bytes, rng: Random) -> bytes:
    """A value nested deeply."""
    matches = list(re.finditer(rb"(?<=[=:] )\S+|(?<=[=:,])[\w.]+", data))
    if not matches:
        return odd(data, rng)
    match = rng.choice(matches)
    first, last = rng.choice([(b"[", b"]"), (b"{a=", b"}"), (b'{"a":', b"}")])
    deep = first * NEST + match[0] + last * NEST
    return data[: match.start()] + deep + data[match.end() :]


TEXT = (*BYTES, token, token, token, token, line, line, nested)
ONE_LINE = (token, token, token, flipped, cut, grown, shrunk)
"""Values of command-line arguments."""


def packed(data: bytes, rng: Random, way: Mutation) -> bytes:
    """The compressed content of a file mutated, and compressed again."""
    return gzip.compress(way(gzip.decompress(data), rng))


# JSON


def value(rng: Random) -> Any:
    """A value that is likely to be wrong."""
    return rng.choice(
        [
            *(None, True, False, 0, -1, 1, 2**53 + 1, 2**63, 10**40, 1.5, -1e308, 1e308),
            *(float("nan"), float("inf"), [], {}, [[]], [None], {"": None}, [1, "a"], "x"),
            *TEXTS,
        ]
    )


def changed(node: Any, rng: Random) -> Any:
    """A JSON value with one part replaced, gone or added."""
    if isinstance(node, dict) and node and rng.random() < 0.9:
        name = rng.choice(list(node))
        kind = rng.randrange(10)
        if kind == 0:
            return {key: part for key, part in node.items() if key != name}
        if kind == 1:
            return {**node, rng.choice(TEXTS): value(rng)}
        if kind == 2:
            return {rng.choice(TEXTS) if key == name else key: node[key] for key in node}
        return {**node, name: changed(node[name], rng)}
    if isinstance(node, list) and node and rng.random() < 0.9:
        at = rng.randrange(len(node))
        if rng.random() < 0.2:
            return node[:at] + node[at + 1 :]
        return [*node[:at], changed(node[at], rng), *node[at + 1 :]]
    return value(rng)


def document(data: bytes, rng: Random) -> bytes:
    """A JSON document with a part replaced, gone or added."""
    return json.dumps(changed(json.loads(data), rng)).encode()


def json_line(data: bytes, rng: Random) -> bytes:
    """A line of JSON with a part replaced, gone or added."""
    lines = data.splitlines()
    at = rng.randrange(len(lines))
    lines[at] = document(lines[at], rng)
    return b"\n".join(lines) + b"\n"


JSON = (*TEXT, document, document, document, document, document, document)
LINES = (*TEXT, json_line, json_line, json_line, json_line, json_line)


# Requests: documents with a body, which is a document itself


def body(data: bytes, rng: Random) -> bytes:
    """A request with another body."""
    request = json.loads(data)
    old = request["body"].encode() or b"{}"
    text = rng.choice(JSON if old.startswith(b"{") else TEXT)(old, rng)
    return json.dumps({**request, "body": text.decode(errors="surrogateescape")}).encode()


REQUEST = (document, body, body)


# Databases: the file is valid, its rows or tables are not


def database(path: Path, rng: Random) -> None:
    """Change a database: a value, a row, a column or a table."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        asked = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
        tables = connection.execute(asked)
        table = rng.choice([name for (name,) in tables])
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        rows = connection.execute(f"SELECT rowid, * FROM {table}").fetchall()
        at, kind = rng.randrange(len(columns)), rng.randrange(12)
        if kind == 0 or not rows:
            connection.execute(f"DROP TABLE {table}")
        elif kind == 1:
            connection.execute(f"ALTER TABLE {table} RENAME COLUMN {columns[at]} TO other")
        else:
            row, *values = rng.choice(rows)
            if kind == 2:
                connection.execute(f"DELETE FROM {table} WHERE rowid = ?", [row])
                return
            new, old = value(rng), values[at]
            if isinstance(old, str) and old.startswith("{") and kind > 3:
                new = document(old.encode(), rng).decode()
            update = f"UPDATE OR IGNORE {table} SET {columns[at]} = ? WHERE rowid = ?"
            connection.execute(update, [stored(new), row])


def stored(new: Any) -> int | float | str | None:
    """A value that a database can store."""
    if new is None or isinstance(new, float) or (isinstance(new, int) and abs(new) < 2**63):
        return new
    text = new if isinstance(new, str) else json.dumps(new)
    return text.encode(errors="replace").decode()


# Parquet: the file is valid, its rows are not; its checksum is updated


def rows(path: Path, rng: Random) -> None:
    """Rewrite a file with other values, rows, columns or types."""
    table = pq.read_table(path, partitioning=None)
    name = rng.choice(table.column_names)
    at = table.column_names.index(name)
    kind = rng.randrange(7)
    if kind == 0:
        table = table.drop_columns([name])
    elif kind == 1:
        table = pa.concat_tables([table, table.slice(0, rng.randint(0, table.num_rows))])
    elif kind == 2:
        table = table.slice(rng.randint(0, table.num_rows))
    elif kind == 3:
        nulls = pa.nulls(table.num_rows, table.schema.field(name).type)
        table = table.set_column(at, name, nulls)
    elif kind == 4:
        other = rng.choice([0, -1, 2**62, 1.5, float("nan"), float("inf"), True, "x", "", [1], {}])
        table = table.set_column(at, name, pa.array([other] * table.num_rows))
    elif kind == 5:
        table = table.rename_columns(
            [rng.choice(TEXTS[1:5]) if c == name else c for c in table.column_names]
        )
    else:
        column = [same_kind(part, rng) for part in table[name].to_pylist()]
        table = table.set_column(at, name, pa.array(column, table.schema.field(name).type))
    whole = pa.BufferOutputStream()  # a file that cannot be written would be removed
    pq.write_table(table, whole)
    path.write_bytes(whole.getvalue())
    noted(path)


def same_kind(node: Any, rng: Random) -> Any:
    """Another value of the same type, as deep as there are values."""
    match node:
        case bool():
            return not node
        case int():
            return rng.choice([0, -1, 1, 2**31, 2**62, -(2**62)])
        case float():
            return rng.choice([0.0, -1.0, 1e308, -1e308, float("nan"), float("inf"), 5e-324])
        case str():
            return rng.choice([text for text in TEXTS if text.isprintable() or text == "\x1b[31m"])
        case dict() if node:
            name = rng.choice(list(node))
            return {**node, name: same_kind(node[name], rng)}
        case list() if node and rng.random() < 0.8:
            part = rng.randrange(len(node))
            return [*node[:part], same_kind(node[part], rng), *node[part + 1 :]]
        case list():
            return []
    return node
