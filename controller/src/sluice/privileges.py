# SPDX-License-Identifier: Apache-2.0
"""Drops all capabilities except CAP_NET_ADMIN, and disables core files.

CAP_NET_ADMIN is needed to create TAPs, to change addresses, neighbours and routes in the kernel,
and to write /proc/sys/net. Without CAP_DAC_OVERRIDE, root is subject to the owner and mode of files
like any other user. `no_new_privs` and the bounding set also apply to child processes, such as the
process that keeps the TAPs open (`sources.tap_keeper`).

Each thread has its own capabilities. All other threads must call `give_up` before `drop` is called.
CAP_SYS_ADMIN, which is needed to enter network namespaces, is dropped too. Linux only
(capabilities(7)). Calls the C library, because Python's standard library lacks these functions.
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
# struct __user_cap_header_struct, and two consecutive struct __user_cap_data_struct
HEADER = Struct("=Ii")
DATA = Struct("=6I")

_libc = ctypes.CDLL(None, use_errno=True)


class PrivilegeError(Exception):
    """Reports that the process lacks a privilege, or cannot drop privileges."""


def has(capability: int) -> bool:
    """Returns whether the calling thread has a capability."""
    return bool(_permitted() >> capability & 1)


def drop(keep: frozenset[int] = KEPT) -> None:
    """Drops all capabilities of the process except `keep`, permanently.

    Raises PrivilegeError. This includes the case that another thread has more capabilities or lacks
    `no_new_privs`.
    """
    for task in Path("/proc/self/task").iterdir():
        if int(task.name) == threading.get_native_id():
            continue
        if int(_status(task, "CapPrm"), 16) & ~_mask(keep) or _status(task, "NoNewPrivs") != "1":
            raise PrivilegeError(
                f"thread {task.name} runs with privileges, which it must give up first"
            )
    give_up(keep)


def give_up(keep: frozenset[int] = KEPT) -> None:
    """Drops all capabilities of the calling thread except `keep`, permanently.

    Raises PrivilegeError.
    """
    permitted = _permitted()
    wanted = _mask(keep)
    if wanted & ~permitted:
        raise PrivilegeError(
            "the controller creates TAPs and needs CAP_NET_ADMIN: run it as root, or give it this"
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
    """Protects the keys in this process's memory permanently. Raises PrivilegeError.

    The process writes no core file, and unprivileged processes cannot trace it.
    """
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        # If the kernel pipes cores to a program, it ignores the core size limit. But it respects
        # this setting.
        _call("core files", "prctl", PR_SET_DUMPABLE, 0, 0, 0, 0)
    except (OSError, ValueError) as error:
        raise PrivilegeError(f"core files cannot be switched off: {error}") from error


def _mask(capabilities: frozenset[int]) -> int:
    return sum(1 << capability for capability in capabilities)


def _status(task: Path, field: str) -> str:
    """Returns the first word of a field in a thread's status file."""
    lines = (task / "status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(f"{field}:"))


def _drop_bounding_set(keep: frozenset[int]) -> None:
    for capability in range(64):
        held = _libc.prctl(PR_CAPBSET_READ, capability, 0, 0, 0)
        if held < 0:  # EINVAL: no capability has this number
            return
        if held and capability not in keep:
            try:
                _call("bounding set", "prctl", PR_CAPBSET_DROP, capability, 0, 0, 0)
            except PermissionError:
                return  # without CAP_SETPCAP; no_new_privs has the same effect


def _permitted() -> int:
    data = ctypes.create_string_buffer(DATA.size)
    _call("capabilities", "capget", HEADER.pack(VERSION_3, 0), data)
    _, low, _, _, high, _ = DATA.unpack(data.raw)
    return int(low | high << 32)


def _set(capabilities: int) -> None:
    low, high = capabilities & 0xFFFFFFFF, capabilities >> 32
    data = DATA.pack(low, low, 0, high, high, 0)  # effective, permitted, inheritable (none)
    _call("capabilities", "capset", HEADER.pack(VERSION_3, 0), data)


def _call(what: str, name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno() or errno.EPERM
        raise OSError(number, f"{what}: {os.strerror(number)}")
