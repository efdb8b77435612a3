"""Hosts: which names and addresses can only mean this machine."""

from __future__ import annotations

import ipaddress

__all__ = ["is_loopback", "means_this_machine"]


def is_loopback(host: str) -> bool:
    """Whether an address can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a name, which may lead anywhere
        return False


def means_this_machine(host: str) -> bool:
    """Whether the header Host, a name or an address and perhaps a port, can only mean this machine."""
    return is_loopback(host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0])
