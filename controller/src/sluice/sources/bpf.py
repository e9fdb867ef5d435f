# SPDX-License-Identifier: Apache-2.0
"""Creates BPF maps and loads BPF programs (bpf(2)).

Needs CAP_BPF and CAP_NET_ADMIN, or root. Calls the C library, because Python's standard library has
no function for bpf(2).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import platform
import sys
from enum import IntEnum
from struct import Struct

NUMBERS = {"x86_64": 321, "aarch64": 280, "riscv64": 280, "ppc64le": 361, "s390x": 351}
"""Number of the system call bpf(2), by machine."""
MAP_CREATE, MAP_UPDATE, MAP_DELETE, PROG_LOAD, LINK_CREATE = 0, 2, 3, 5, 28
PROG_QUERY = 16
SCHED_CLS = 3
NO_PREALLOC = 1
NAME_SIZE = 16
LOG_SIZE = 1 << 16

# struct bpf_attr for MAP_CREATE: type, key size, value size, entries, flags, inner map, NUMA node,
# name
_CREATE = Struct("=7I16s")
# struct bpf_attr for MAP_UPDATE and MAP_DELETE: descriptor, key, value, flags
_ELEMENT = Struct("=I4xQQQ")
# struct bpf_attr for PROG_LOAD: type, instructions, address of them, address of the licence, log
# level, log size, address of the log, kernel version, flags, name
_LOAD = Struct("=IIQQIIQII16s")

# struct bpf_attr for LINK_CREATE: program, ifindex, attach type, flags, position among the
# programs, revision
_LINK = Struct("=4I2IQ")
# struct bpf_attr for PROG_QUERY: ifindex, attach type, flags, attach flags, address of the ids,
# number of the ids, and four more addresses
_QUERY = Struct("=4IQI4x4Q")
_QUERIED = slice(24, 28)

_libc = ctypes.CDLL(None, use_errno=True)


class MapType(IntEnum):
    """Types of maps, with the values of the kernel's BPF_MAP_TYPE_*."""

    HASH = 1
    ARRAY = 2
    PROGRAM_ARRAY = 3
    LPM_TRIE = 11


def _number(what: str) -> int:
    number = NUMBERS.get(platform.machine())
    if number is None:
        raise OSError(f"{what}: the number of bpf(2) is not known on {platform.machine()}")
    return number


def _call(command: int, attributes: bytes, what: str) -> int:
    number = _number(what)
    data = ctypes.create_string_buffer(attributes, len(attributes))
    return _call_in_place(number, command, data, what)


def _call_in_place(number: int, command: int, data: ctypes.Array[ctypes.c_char], what: str) -> int:
    """Makes the system call. The kernel may write results into `data`."""
    result: int = _libc.syscall(number, command, data, len(data))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
    return result


def _name(name: str) -> bytes:
    return name.encode()[: NAME_SIZE - 1]


class AttachType(IntEnum):
    """Hooks of tcx (since Linux 6.6), with the values of the kernel's BPF_TCX_*."""

    INGRESS = 46
    EGRESS = 47


class Map:
    """Holds the descriptor of a map. `close` closes it."""

    def __init__(self, kind: MapType, name: str, key: int, value: int, entries: int) -> None:
        """Creates a map of `entries` entries. `key` and `value` are sizes in octets. Raises
        OSError."""
        flags = NO_PREALLOC if kind is MapType.LPM_TRIE else 0
        attributes = _CREATE.pack(kind, key, value, entries, flags, 0, 0, _name(name))
        self.descriptor = _call(MAP_CREATE, attributes, f"BPF map {name}")
        os.set_inheritable(self.descriptor, False)
        self._value_size = value

    def set(self, key: bytes, value: bytes) -> None:
        """Adds or replaces an entry. Raises OSError; E2BIG if the map is full."""
        self._element(MAP_UPDATE, key, value)

    def delete(self, key: bytes) -> None:
        """Deletes an entry. Raises OSError; ENOENT if there is none."""
        self._element(MAP_DELETE, key, None)

    def _element(self, command: int, key: bytes, value: bytes | None) -> None:
        keys, values = ctypes.create_string_buffer(key), ctypes.create_string_buffer(value or b"")
        place = 0 if value is None else ctypes.addressof(values)
        attributes = _ELEMENT.pack(self.descriptor, ctypes.addressof(keys), place, 0)
        _call(command, attributes, "BPF map entry")

    def set_program(self, slot: int, program: int) -> None:
        """Puts a program, given by its descriptor, into a slot of a program array."""
        self.set(slot.to_bytes(4, sys.byteorder), program.to_bytes(4, sys.byteorder))

    def move_to(self, least: int) -> None:
        """Moves the descriptor to another number, which is at least `least`. Raises OSError."""
        moved = fcntl.fcntl(self.descriptor, fcntl.F_DUPFD_CLOEXEC, least)
        self.close()
        self.descriptor = moved

    def close(self) -> None:
        """Closes the descriptor; idempotent."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def load(name: str, code: bytes) -> int:
    """Loads a program for tc. Returns its descriptor. Raises OSError with the verifier's reason."""
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"Apache-2.0")
    log = ctypes.create_string_buffer(LOG_SIZE)
    attributes = _LOAD.pack(
        SCHED_CLS,
        len(code) // 8,
        ctypes.addressof(instructions),
        ctypes.addressof(licence),
        1,
        LOG_SIZE,
        ctypes.addressof(log),
        0,
        0,
        _name(name),
    )
    try:
        descriptor = _call(PROG_LOAD, attributes, f"BPF program {name}")
    except OSError as error:
        lines = log.value.decode(errors="replace").strip().splitlines()
        raise OSError(error.errno, f"{error.strerror}: {' / '.join(lines[-3:])}") from error
    os.set_inheritable(descriptor, False)
    return descriptor


def attach(program: int, ifindex: int, hook: AttachType) -> int:
    """Attaches a program to a tcx hook. Returns the descriptor of the link.

    The program is detached when the last descriptor of the link is closed. Raises OSError; EINVAL
    on a kernel without tcx.
    """
    attributes = _LINK.pack(program, ifindex, hook, 0, 0, 0, 0)
    descriptor = _call(LINK_CREATE, attributes, f"BPF program on interface {ifindex}")
    os.set_inheritable(descriptor, False)
    return descriptor


def attached(ifindex: int, hook: AttachType) -> int:
    """Returns the number of programs at a tcx hook; 0 on a kernel without tcx, or if there is no
    such interface. Raises OSError."""
    data = ctypes.create_string_buffer(_QUERY.pack(ifindex, hook, *[0] * 8), _QUERY.size)
    what = f"BPF programs on interface {ifindex}"
    try:
        _call_in_place(_number(what), PROG_QUERY, data, what)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT, errno.EPERM, errno.ENODEV):
            return 0
        raise
    return int.from_bytes(data.raw[_QUERIED], sys.byteorder)
