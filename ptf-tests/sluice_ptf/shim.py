# SPDX-License-Identifier: Apache-2.0
"""Builds the engine's shim as bytes, and ESP packets as a peer or an engine would send them.

The module is written by hand after the contract with the engine (p4src/headers.p4). So the tests
detect a change of the program's header, on which an engine relies. Depends on frames and raw.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from sluice_ptf.frames import untagged

ETHERTYPE_SHIM = b"\x88\xb5"
ENCRYPT, ENCRYPTED, DECRYPT, DECRYPTED = 1, 2, 3, 4
ESP = 50


@dataclass(frozen=True)
class Shim:
    """Holds the header between router and engine, which follows the Ethernet header."""

    kind: int
    engine: int = 1
    bundle: int = 0
    sa: int = 0
    ingress_l3_if: int = 0
    vrf: int = 0

    def on(self, frame: bytes) -> bytes:
        """Returns the frame with the shim behind its Ethernet header, without its VLAN tag."""
        bare = untagged(frame)
        header = struct.pack(
            "!BBHIHH",
            self.kind,
            self.engine,
            self.bundle,
            self.sa,
            self.ingress_l3_if,
            self.vrf,
        )
        return bare[:12] + ETHERTYPE_SHIM + header + bare[12:]


def esp(spi: int, size: int = 40) -> bytes:
    """Returns an ESP packet with sequence number 1 and arbitrary bytes as ciphertext."""
    return struct.pack("!II", spi, 1) + bytes(index & 0xFF for index in range(size))
