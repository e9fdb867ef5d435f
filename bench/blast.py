# SPDX-License-Identifier: Apache-2.0
"""Sends frames fast: sendmmsg on a raw socket, paced, from one thread.

Promises: the frames go round in their order; at a given rate they leave in
small bursts, evenly spread, and what cannot be sent in time is not sent later.
Depends on nothing but the C library.
"""

from __future__ import annotations

import ctypes
import socket
import time
from collections.abc import Sequence

BURST = 16
_libc = ctypes.CDLL(None, use_errno=True)


class _Vector(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class _Message(ctypes.Structure):
    """struct mmsghdr of 64-bit Linux."""

    _fields_ = (
        ("name", ctypes.c_void_p),
        ("name_length", ctypes.c_uint32),
        ("vectors", ctypes.POINTER(_Vector)),
        ("vector_count", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("control_length", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("sent", ctypes.c_uint),
    )


class Blaster:
    """Sends the same frames over and over into one interface."""

    def __init__(self, interface: str, frames: Sequence[bytes]):
        self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self._socket.bind((interface, 0))
        self._buffers = [ctypes.create_string_buffer(frame, len(frame)) for frame in frames]
        self._vectors = (_Vector * len(frames))()
        self._messages = (_Message * len(frames))()
        for index, buffer in enumerate(self._buffers):
            self._vectors[index] = _Vector(ctypes.addressof(buffer), len(buffer))
            self._messages[index].vectors = ctypes.pointer(self._vectors[index])
            self._messages[index].vector_count = 1

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, seconds: float, rate: float) -> int:
        """Send for so long at so many frames a second; returns how many were sent."""
        start = time.monotonic()
        end = start + seconds
        sent = at = 0
        while (now := time.monotonic()) < end:
            due = int((now - start) * rate) - sent
            if due < BURST:
                time.sleep((BURST - due) / rate)
                continue
            # What is late by more than a few bursts is let go, not made up for.
            burst = min(BURST * 4, due, len(self._messages) - at)
            done = self._send(at, burst)
            sent, at = sent + done, (at + done) % len(self._messages)
            if due > BURST * 8:
                start += (due - burst) / rate
        return sent

    def _send(self, at: int, count: int) -> int:
        first = ctypes.byref(self._messages, at * ctypes.sizeof(_Message))
        done: int = _libc.sendmmsg(self._socket.fileno(), first, count, 0)
        if done < 0:
            raise OSError(ctypes.get_errno(), "sendmmsg")
        return done
