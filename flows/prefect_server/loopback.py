"""Which hosts are this machine."""

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Whether a host, as a URL names it, is this machine whatever the name servers say."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
