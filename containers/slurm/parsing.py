"""What Slurm's commands print, read by pure functions.

Commands are asked for columns of our choice, which Slurm pads and cuts to a width in bytes, so that
no field, whatever its characters, can be taken for another. Text that does not have exactly this
form is an error that names the command, never a guess.
"""

import re
from collections.abc import Collection, Mapping
from itertools import product

SEPARATOR = "\x1f"
"""End of a column: the unit separator of ASCII."""

MOST_HOSTS = 100_000
"""Most hosts that a list may name: a bound on garbled lists, above any cluster."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_GRES = re.compile(r"gpu(?::([A-Za-z0-9_.-]+))?:(\d+)(?:\((?:S|IDX):[^()]*\))?")
_TRES = re.compile(r"gres/gpu(?::([A-Za-z0-9_.-]+))?=(\d+)")

_ALLOCATED = re.compile(r" Nodes=(\S+) CPU_IDs=\S* Mem=\S* GRES=(\S*)")


class SlurmAway(Exception):
    """Slurm does not answer, or not intelligibly; the message names the command and the cause."""


def make_format(columns: Mapping[str, int]) -> str:
    """Return the format (`-O`) of columns by name, with their widths in bytes."""
    return ",".join(f"{name}:{width}{SEPARATOR}" for name, width in columns.items())


def read_table(
    command: str, text: str, columns: Mapping[str, int], cut: Collection[str] = ()
) -> list[dict[str, str]]:
    """Read the rows of a command that was asked for columns.

    `text` is UTF-8, with surrogates for the bytes that are not (`surrogateescape`).

    Raises:
        SlurmAway: A row is incomplete, or a field has been cut to its column's width, other than
            those of `cut`.
    """
    data = text.encode(errors="surrogateescape")
    size = sum(columns.values()) + len(SEPARATOR) * len(columns) + len("\n")
    if len(data) % size:
        raise SlurmAway(f"{command} printed {len(data)} bytes, which are no rows of {size}")
    rows = []
    for begin in range(0, len(data), size):
        row, at = dict[str, str](), begin
        for name, width in columns.items():
            field = data[at : at + width]
            at += width + 1
            if data[at - 1 : at] != SEPARATOR.encode():
                raise SlurmAway(f"{command} printed no column {name}: {data[begin:at][:80]!r}")
            if name not in cut and not field.endswith(b" "):
                raise SlurmAway(f"{command} cut off {name}: {field[:80]!r}")
            row[name] = field.decode(errors="replace").strip()
        if data[at : at + 1] != b"\n":
            raise SlurmAway(f"{command} printed more columns than {', '.join(columns)}")
        rows.append(row)
    return rows


def read_number(command: str, name: str, text: str) -> int:
    """Read a count, an id or a time in Unix seconds.

    Raises:
        SlurmAway: It is not a number.
    """
    if not (text.isascii() and text.isdecimal()):
        raise SlurmAway(f"{command} printed {text[:80]!r} as {name}, which is no number")
    return int(text)


def read_hosts(command: str, text: str) -> tuple[str, ...]:
    """Read a list of hosts such as `n[1-3,07],login`; none of an empty one.

    Raises:
        SlurmAway: It is not a list of hosts.
    """
    hosts: list[str] = []
    # Commas within brackets do not separate hosts.
    for part in re.split(r",(?![^\[]*\])", text) if text else ():
        pieces = _BRACKETS.split(part)
        ranges = [_read_ranges(command, text, piece) for piece in pieces[1::2]]
        for numbers in product(*ranges):
            filled = [
                piece for pair in zip(pieces[::2], (*numbers, ""), strict=True) for piece in pair
            ]
            hosts.append("".join(filled))
            if len(hosts) > MOST_HOSTS or not _HOST.fullmatch(hosts[-1]):
                raise _no_hosts(command, text)
    return tuple(hosts)


def _read_ranges(command: str, whole: str, text: str) -> list[str]:
    """Read `1-3,07` as numbers with their leading zeros."""
    numbers: list[str] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        last = last if dash else first
        if not (first.isdecimal() and last.isdecimal() and part.isascii()):
            raise _no_hosts(command, whole)
        if not 0 <= int(last) - int(first) < MOST_HOSTS:
            raise _no_hosts(command, whole)
        numbers += [f"{at:0{len(first)}d}" for at in range(int(first), int(last) + 1)]
    return numbers


def _no_hosts(command: str, text: str) -> SlurmAway:
    return SlurmAway(f"{command} printed {text[:80]!r}, which is no list of hosts")


def read_gpus(command: str, text: str) -> dict[str, int]:
    """Read a node's GPUs (GRES) as numbers by type, such as `gpu:a100:4(S:0-1)`; "" is untyped.

    Raises:
        SlurmAway: It is not a list of GRES.
    """
    gpus: dict[str, int] = {}
    if text in ("", "(null)"):
        return gpus
    for part in re.split(r",(?![^(]*\))", text):
        if part.partition(":")[0] != "gpu":
            continue
        if not (found := _GRES.fullmatch(part)):
            raise SlurmAway(f"{command} printed {text[:80]!r}, which is no list of GRES")
        kind, number = found.groups()
        gpus[kind or ""] = gpus.get(kind or "", 0) + int(number)
    return gpus


def count_gpus(command: str, text: str) -> int:
    """Read the GPUs of a job or node from its TRES, such as `cpu=1,gres/gpu=2,gres/gpu:a100=2`.

    Typed GPUs are listed beside their total, and some versions list them alone.

    Raises:
        SlurmAway: It is not a list of TRES.
    """
    totals: dict[bool, int] = {}
    for part in text.split(",") if text not in ("", "N/A", "(null)") else ():
        name, equals, _ = part.partition("=")
        if not (name and equals):
            raise SlurmAway(f"{command} printed {text[:80]!r}, which is no list of TRES")
        if name.partition(":")[0] == "gres/gpu":
            if not (found := _TRES.fullmatch(part)):
                raise SlurmAway(f"{command} printed {text[:80]!r}, which is no list of TRES")
            typed = found[1] is not None
            totals[typed] = totals.get(typed, 0) + int(found[2])
    return totals.get(False, totals.get(True, 0))


def read_allocated(command: str, text: str) -> dict[str, int]:
    """Read the GPUs that a job holds by node, from `scontrol --details --oneliner show job`.

    Raises:
        SlurmAway: They cannot be read.
    """
    return {
        host: sum(read_gpus(command, gres).values())
        for hosts, gres in _ALLOCATED.findall(text)
        for host in read_hosts(command, hosts)
    }


def read_gpu_type(command: str, text: str) -> str:
    """Read the type of a job's GPUs from its TRES; empty if it is untyped.

    Raises:
        SlurmAway: It is not a list of TRES.
    """
    count_gpus(command, text)
    return next((kind for kind, _ in _TRES.findall(text) if kind), "")


def read_status(text: str) -> int:
    """Read a job's status; returns its exit code, 128 + n after signal n.

    It is one of wait(2), or `EXIT:SIGNAL` as newer versions of `squeue` print it.

    Raises:
        SlurmAway: It is not a status.
    """
    first, colon, last = text.partition(":")
    status = read_number("squeue", "exit_code", first)
    signal, code = status & 127, status >> 8
    if colon:
        signal, code = read_number("squeue", "exit_code", last), status
    if code > 255 or signal > 127:
        raise SlurmAway(f"squeue printed {text!r}, which is no status of a process")
    return 128 + signal if signal else code
