"""No connection over a network: Python imports this at its start where its folder is on the path.

``conftest`` loads it for the tests and puts the folder on the path of every process that they start. Python tells what
it is about to do by audit events, and an exception raised there stops it.
"""

import os
import socket
import sys

ALLOWED = "VCUDA_TESTS_NETWORK"
NAMES = ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr", "socket.getnameinfo")
ADDRESSES = ("socket.connect", "socket.bind", "socket.sendto", "socket.sendmsg")


class NetworkUsedError(RuntimeError):
    """No OSError: those are expected of networks, and passed over."""


def refuse(event: str, arguments: tuple[object, ...]) -> None:
    if not event.startswith("socket.") or os.environ.get(ALLOWED):
        return
    over_network = event in ADDRESSES and getattr(arguments[0], "family", None) in (socket.AF_INET, socket.AF_INET6)
    if over_network or event in NAMES:
        raise NetworkUsedError(f"{event} {arguments[1:]!r}: tests use no network unless they are marked so")


sys.addaudithook(refuse)
