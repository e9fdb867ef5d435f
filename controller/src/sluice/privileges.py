# SPDX-License-Identifier: Apache-2.0
"""Gives up what the controller does not need: of root's capabilities it keeps CAP_NET_ADMIN.

That makes TAPs (also those of a restart), talks to the kernel about addresses, neighbours and
routes, and lets the user write /proc/sys/net. Files are opened by the user's own permissions: root
without CAP_DAC_OVERRIDE reads and writes what belongs to root. `no_new_privs` and the bounding set
hold for every program that is started, such as the keeper of the TAPs.

Capabilities are a thread's own: `drop` is for the time before there is a second thread. Linux only
(capabilities(7)); calls the C library, since the standard library has none of this.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from struct import Struct

CAP_NET_ADMIN = 12
KEPT = frozenset({CAP_NET_ADMIN})

PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 23, 24, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
VERSION_3 = 0x20080522
# struct __user_cap_header_struct; two of struct __user_cap_data_struct
HEADER = Struct("=Ii")
DATA = Struct("=6I")

_libc = ctypes.CDLL(None, use_errno=True)


class PrivilegeError(Exception):
    """The process has not what it needs, or cannot give up the rest; says what to do."""


def drop(keep: frozenset[int] = KEPT) -> None:
    """Keeps these capabilities and no others, for good. Raises PrivilegeError.

    Raises it too while there is another thread, which would keep all that it has.
    """
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads != 1:
        raise PrivilegeError(f"{threads} threads run; privileges are given up before the second")
    permitted = _permitted()
    wanted = sum(1 << capability for capability in keep)
    if wanted & ~permitted:
        raise PrivilegeError(
            "the controller makes TAPs and needs CAP_NET_ADMIN: run it as root, or give it that"
            " capability"
        )
    try:
        _call("no new privileges", "prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call("ambient capabilities", "prctl", PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
        _drop_bounding_set(keep)
        _set(wanted)
    except OSError as error:
        raise PrivilegeError(f"privileges cannot be given up: {error}") from error


def _drop_bounding_set(keep: frozenset[int]) -> None:
    for capability in range(64):
        held = _libc.prctl(PR_CAPBSET_READ, capability, 0, 0, 0)
        if held < 0:  # EINVAL: there are no more
            return
        if held and capability not in keep:
            try:
                _call("bounding set", "prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
            except PermissionError:
                return  # a user without CAP_SETPCAP: no_new_privs already says the same


def _permitted() -> int:
    data = ctypes.create_string_buffer(DATA.size)
    _call("capabilities", "capget", HEADER.pack(VERSION_3, 0), data)
    _, low, _, _, high, _ = DATA.unpack(data.raw)
    return int(low | high << 32)


def _set(capabilities: int) -> None:
    low, high = capabilities & 0xFFFFFFFF, capabilities >> 32
    data = DATA.pack(low, low, 0, high, high, 0)  # effective, permitted; nothing inheritable
    _call("capabilities", "capset", HEADER.pack(VERSION_3, 0), data)


def _call(what: str, name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno() or errno.EPERM
        raise OSError(number, f"{what}: {os.strerror(number)}")
