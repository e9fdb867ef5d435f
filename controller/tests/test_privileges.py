# SPDX-License-Identifier: Apache-2.0
"""Tests which of root's privileges a process and its child processes keep. Needs root."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from sluice import privileges
from sluice.privileges import PrivilegeError

NET_ADMIN = f"{1 << privileges.CAP_NET_ADMIN:016x}"
NOTHING = "0" * 16

PROGRAM = """
import json, os, sys, subprocess
from pathlib import Path
from sluice import privileges

def status():
    lines = (line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return {k: v.strip() for k, v in lines if k.startswith("Cap") or k == "NoNewPrivs"}

privileges.drop()
child = subprocess.run([sys.executable, "-c", "print(open('/proc/self/status').read())"],
                       capture_output=True, text=True, check=True).stdout
child = {k: v.strip() for k, v in (line.split(":", 1) for line in child.splitlines() if ":" in line)
         if k in status()}
did = {}
for name, act in {
    "bind": lambda: __import__("socket").create_server(("127.0.0.1", 80)).close(),
    "chown": lambda: os.chown(sys.argv[1], 1, 1),
    "read": lambda: open(sys.argv[1]).close(),
    "setuid": lambda: os.setuid(12345),
    "tun": lambda: os.close(os.open("/dev/net/tun", os.O_RDWR)),
    "sysctl": lambda: Path("/proc/sys/net/ipv4/conf/lo/arp_ignore").write_text("0"),
}.items():
    try:
        act()
        did[name] = 0
    except OSError as error:
        did[name] = error.errno
privileges.drop()  # what is given up already may be given up again
print(json.dumps([status(), child, did]))
"""


def run(*arguments: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def test_net_admin_is_all_that_is_left(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.touch(mode=0o600)
    os.chown(foreign, 12345, 12345)
    status, child, did = run(str(foreign))
    expected = {
        "CapInh": NOTHING,
        "CapPrm": NET_ADMIN,
        "CapEff": NET_ADMIN,
        "CapBnd": NET_ADMIN,
        "CapAmb": NOTHING,
        "NoNewPrivs": "1",
    }
    assert status == expected
    assert child == expected
    denied, not_permitted = 13, 1
    assert did == {
        "bind": denied,
        "chown": not_permitted,
        "read": denied,
        "setuid": not_permitted,
        "tun": 0,
        "sysctl": 0,
    }


def test_a_second_thread_would_keep_everything_and_is_refused() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    try:
        with pytest.raises(PrivilegeError, match="runs with privileges"):
            privileges.drop()
    finally:
        done.set()
        thread.join()


def test_without_net_admin_it_says_what_is_needed() -> None:
    program = (
        "import os; os.setresuid(12345, 12345, 12345)\n"
        "from sluice import privileges\n"
        "try: privileges.drop()\n"
        "except privileges.PrivilegeError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import sluice.privileges\n" + program],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "needs CAP_NET_ADMIN: run it as root" in done.stdout


NO_CORE = """
import ctypes, resource
from sluice import privileges

privileges.forbid_core()
PR_GET_DUMPABLE = 3
print(resource.getrlimit(resource.RLIMIT_CORE), ctypes.CDLL(None).prctl(PR_GET_DUMPABLE))
"""


def test_a_core_file_is_never_written() -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_CORE], check=False, capture_output=True, text=True
    )
    assert done.stdout.split("\n")[0] == "(0, 0) 0", done.stderr
