# SPDX-License-Identifier: Apache-2.0
"""Builds frames as bytes, among them the frames that are expected after routing.

The module follows RFC 1812 and not the pipeline's code, because the tests compare the pipeline with
this module.
"""

from __future__ import annotations

import struct

ETHERTYPE_VLAN = b"\x81\x00"
ETHERTYPE_IPV4 = b"\x08\x00"
ETHERTYPE_IPV6 = b"\x86\xdd"


def mac_bytes(mac: str) -> bytes:
    """Returns a MAC address as 6 bytes."""
    return bytes.fromhex(mac.replace(":", ""))


def internet_checksum(data: bytes) -> int:
    """Returns the checksum of RFC 1071 over an even number of bytes."""
    total: int = sum(word for (word,) in struct.iter_unpack("!H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def untagged(frame: bytes) -> bytes:
    """Returns the frame without its VLAN tag, if it has one."""
    return frame[:12] + frame[16:] if frame[12:14] == ETHERTYPE_VLAN else frame


def tagged(frame: bytes, vlan: int, priority: int = 0) -> bytes:
    """Returns the frame with a VLAN tag. If `vlan` is 0, the frame stays untagged."""
    if not vlan:
        return frame
    return frame[:12] + ETHERTYPE_VLAN + struct.pack("!H", priority << 13 | vlan) + frame[12:]


def readdressed(frame: bytes, src: str, dst: str) -> bytes:
    """Returns the frame with other MAC addresses."""
    return mac_bytes(dst) + mac_bytes(src) + frame[12:]


def hop_decremented(frame: bytes) -> bytes:
    """Returns an untagged frame after one hop: TTL or hop limit decremented, checksum
    recomputed.
    """
    header = bytearray(frame)
    if frame[12:14] == ETHERTYPE_IPV6:
        header[14 + 7] -= 1
    elif frame[12:14] == ETHERTYPE_IPV4:
        end = 14 + (frame[14] & 0xF) * 4
        header[14 + 8] -= 1
        header[14 + 10 : 14 + 12] = b"\0\0"
        checksum = internet_checksum(bytes(header[14:end]))
        header[14 + 10 : 14 + 12] = struct.pack("!H", checksum)
    return bytes(header)
