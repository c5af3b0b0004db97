"""The environment of Shockwave's processes: no usage statistics, no proxy to this machine."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def private_env(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that keep a process from telling others what it does.

    Clients and servers of Prefect, and Ray, send no usage statistics. Requests to this machine
    bypass proxies, which would see the secret.

    Args:
        env: The environment that they are added to; by default, that of this process.
    """
    env = os.environ if env is None else env
    direct = (env.get("no_proxy") or env.get("NO_PROXY", "")).split(",")
    hosts = ",".join(dict.fromkeys([*filter(None, direct), *_LOOPBACK]))
    return {
        "DO_NOT_TRACK": "1",  # Prefect's clients; read while Prefect is imported
        "PREFECT_SERVER_ANALYTICS_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "no_proxy": hosts,
        "NO_PROXY": hosts,
    }


@contextmanager
def set_env(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process and of its children within the context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def is_loopback(host: str) -> bool:
    """Whether a host in a URL is this machine, whatever name servers say."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
