"""Readers of clusters' logs: exports of schedulers, and public sets of traces.

Each format is a `LogReader`; `READERS` names them all. `docs/traces.md` describes the formats.
"""

from collections.abc import Mapping

from warehouse.workloads.kinds import Format
from warehouse.workloads.logs.log import LogReader
from warehouse.workloads.logs.pai import PAI
from warehouse.workloads.logs.philly import PHILLY, PHILLY_JSON
from warehouse.workloads.logs.published import ACME, HELIOS, ITP, SUPERCLOUD
from warehouse.workloads.logs.sacct import SACCT

READERS: Mapping[Format, LogReader] = {
    Format.SACCT: SACCT,
    Format.PHILLY: PHILLY,
    Format.PHILLY_JSON: PHILLY_JSON,
    Format.PAI: PAI,
    Format.HELIOS: HELIOS,
    Format.ACME: ACME,
    Format.ITP: ITP,
    Format.SUPERCLOUD: SUPERCLOUD,
}
"""Reader of each format of logs; a `table` has its columns declared."""
