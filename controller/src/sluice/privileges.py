# SPDX-License-Identifier: Apache-2.0
"""Drops the capabilities that the controller does not need, all but CAP_NET_ADMIN, and forbids core
files.

That makes TAPs (also those of a restart), talks to the kernel about addresses, neighbours and
routes, and lets the user write /proc/sys/net. Files are opened by the user's own permissions: root
without CAP_DAC_OVERRIDE reads and writes what belongs to root. `no_new_privs` and the bounding set
hold for every program that is started, such as the keeper of the TAPs.

Capabilities are a thread's own: `drop` is for the time before there are threads but those that
have given up theirs. CAP_SYS_ADMIN, by which network namespaces are entered, goes too. Linux only
(capabilities(7)); calls the C library, since the standard library has none of this.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import threading
from pathlib import Path
from struct import Struct

CAP_NET_ADMIN, CAP_SYS_ADMIN = 12, 21
KEPT = frozenset({CAP_NET_ADMIN})

PR_SET_DUMPABLE = 4
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 23, 24, 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
VERSION_3 = 0x20080522
# struct __user_cap_header_struct; two of struct __user_cap_data_struct
HEADER = Struct("=Ii")
DATA = Struct("=6I")

_libc = ctypes.CDLL(None, use_errno=True)


class PrivilegeError(Exception):
    """The process lacks a privilege, or cannot drop the rest; the message says what to do."""


def has(capability: int) -> bool:
    """Whether the calling thread has a capability."""
    return bool(_permitted() >> capability & 1)


def drop(keep: frozenset[int] = KEPT) -> None:
    """Keeps these capabilities and no others, for good. Raises PrivilegeError.

    Raises it too while there is another thread that has more: capabilities are a thread's own.
    """
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) == threading.get_native_id():
            continue
        if int(_status(task, "CapPrm"), 16) & ~_mask(keep) or _status(task, "NoNewPrivs") != "1":
            raise PrivilegeError(f"thread {task.name} runs with privileges; it must give up its")
    give_up(keep)


def give_up(keep: frozenset[int] = KEPT) -> None:
    """As `drop`, for the calling thread alone."""
    permitted = _permitted()
    wanted = _mask(keep)
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


def forbid_core() -> None:
    """Keeps the keys in this process's memory private, for good: it writes no core file, and other
    processes without privileges cannot trace it. Raises PrivilegeError."""
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # A core that is piped to a program ignores the limit.
        _call("core files", "prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, ValueError) as error:
        raise PrivilegeError(f"core files cannot be switched off: {error}") from error


def _mask(capabilities: frozenset[int]) -> int:
    return sum(1 << capability for capability in capabilities)


def _status(task: Path, field: str) -> str:
    """A field of a thread's status."""
    lines = (task / "status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{field}:"))


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
