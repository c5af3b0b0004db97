"""The process that forecasts a service's rounds: `python -m flows.api.forecaster WAREHOUSE`.

It forecasts the newest round whenever it has finished another one. Everything else has precedence
on the processors. It may be killed at any time.
"""

import os
import sys
import time
from contextlib import suppress
from pathlib import Path

from flows.prefect_server.children import READY, end_with_parent
from flows.prefect_server.logs import start_log
from flows.scheduler.options import DATABASE_URL
from predictor.errors import ShockwaveError
from warehouse.store.durable import find_left_overs

LOOK_SECONDS = 0.2
"""Interval at which it looks for a new round. An engineering choice."""

NICENESS = 10
"""A low priority: a tenth of a process's share. At the lowest, 19, its share is a seventieth, and
on a busy machine forecasts would take minutes."""

RETRY_SECONDS = 10.0
"""Wait after a forecast that failed, for want of space for example. An engineering choice."""


def main(warehouse: Path) -> None:
    """Forecast each round of a warehouse's service, until terminated."""
    end_with_parent()
    start_log()
    os.nice(NICENESS)
    with suppress(OSError):  # some kernels weigh sessions, and processes only within one
        Path("/proc/self/autogroup").write_text(str(NICENESS))
    print(READY, flush=True)
    from flows.api.queries import ServiceQueries
    from flows.api.round_forecasts import FILE

    path = warehouse / FILE
    for left_over in find_left_overs(path.parent, path.name):
        left_over.unlink(missing_ok=True)
    with ServiceQueries(warehouse, os.environ.get(DATABASE_URL, "")) as service:
        known = None
        while True:
            wait = RETRY_SECONDS
            with suppress(ShockwaveError):  # the next look tries again
                history = service.read_history()
                if history.last and history is not known:
                    service.make_forecasts(history)
                    known = history
                wait = LOOK_SECONDS
            time.sleep(wait)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
