# SPDX-License-Identifier: Apache-2.0
"""Causes faults in a running network."""

from collections.abc import Iterator
from contextlib import contextmanager

from sluice_testkit.namespaces import Namespace

DROP = ("bpf", "da", "bytecode", "1,6 0 0 2,")  # TC_ACT_SHOT


@contextmanager
def silent(place: Namespace, interface: str) -> Iterator[None]:
    """Blocks reception and sending on `interface` while the context is open. Its link stays up.

    A capture on the interface still sees received frames.
    """
    place.run("tc", "qdisc", "add", "dev", interface, "clsact")
    try:
        for direction in ("ingress", "egress"):
            place.run("tc", "filter", "add", "dev", interface, direction, *DROP)
        yield
    finally:
        place.run("tc", "qdisc", "del", "dev", interface, "clsact")
