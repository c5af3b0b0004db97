"""The environment of Shockwave's processes: no usage statistics, no proxy to this machine."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address

_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def private_env() -> dict[str, str]:
    """Return variables that keep a process from sending data to others.

    Prefect's clients and servers, and Ray, send no usage statistics. Requests to this machine
    bypass proxies, which would see the secret. Hosts in `no_proxy` are kept.
    """
    direct = (os.environ.get("no_proxy") or os.environ.get("NO_PROXY", "")).split(",")
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
    """Set variables of this process and its children within the context."""
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
    """Return whether a URL's host is this machine, without asking name servers."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
