"""What users start: commands, deployments, campaigns, runs, and questions to recorded runs.

Each folder imports from those below it only: `cli`, `supervisor`, `web`, `deployments`, `api`,
`scheduler`, `campaigns`, `explain`, `evaluation`, `runs`, `prefect_server`.

Importing it turns off the usage statistics of the libraries that it builds on, for this process and
its child processes. Prefect decides while it is imported, so this comes before any import of it.
Servers on this machine are asked directly: a proxy would see the secret.
"""

import os

os.environ |= {
    "DO_NOT_TRACK": "1",  # clients of Prefect
    "PREFECT_SERVER_ANALYTICS_ENABLED": "0",  # its servers
    "RAY_USAGE_STATS_ENABLED": "0",
}
_direct = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")).split(",")
_direct = list(dict.fromkeys(filter(None, [*_direct, "127.0.0.1", "localhost", "::1"])))
os.environ |= dict.fromkeys(("no_proxy", "NO_PROXY"), ",".join(_direct))
