# SPDX-License-Identifier: Apache-2.0
"""Provides the FPM payloads of recordings, and routes as zebra encodes them."""

from __future__ import annotations

from collections import Counter

import recordings
from sluice.model import RouteEvent
from sluice.wire import fpm, netlink, routes

PAYLOADS = sorted(
    {
        frame[fpm.HEADER.size :]
        for recording in recordings.FPM
        for _, frames in recordings.steps(recording)
        for frame in frames
    }
)


def decode(payload: bytes) -> list[RouteEvent]:
    return fpm.decode_payload(payload, Counter())


def new_route(address: bytes, length: int = 24, more: bytes = b"") -> bytes:
    """Returns the message of a route by gateway 10.0.1.2 on interface 7.

    `more` are attributes after the usual ones.
    """
    header = routes.RTMSG.pack(routes.AF_INET, length, 0, 0, 254, 186, 0, 1, 0)
    attributes = (
        (routes.RTA_DST, address),
        (routes.RTA_GATEWAY, bytes((10, 0, 1, 2))),
        (routes.RTA_OIF, netlink.U32.pack(7)),
    )
    body = header + b"".join(netlink.attribute(*one) for one in attributes) + more
    return netlink.message(routes.RTM_NEWROUTE, 0x501, 0, body)
