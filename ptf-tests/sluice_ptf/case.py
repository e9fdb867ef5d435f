# SPDX-License-Identifier: Apache-2.0
"""Turns a function into a PTF test.

    @ptf_test
    def longest_prefix_wins(router: Router) -> None:
        "What the test checks, in a sentence."

PTF expects tests as classes, and `ptf_test` turns a function into one. The test starts with the
tables of the standard router (with `@bare_ptf_test`: with empty tables). At the end, everything
that the test has written is deleted. All tests of a process share one P4Runtime session and one
loaded pipeline.

Test parameters: address, device_id, build (the directory of router.json). PTF itself has the option
for ports (`-i PORT@INTERFACE`).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import ptf
from p4.config.v1 import p4info_pb2
from ptf import testutils
from ptf.base_tests import BaseTest

from sluice_ptf import standard
from sluice_ptf.probe import Probe
from sluice_ptf.router import Router
from sluice_ptf.runtime import RuntimeClient
from sluice_ptf.schema import Schema

Test = Callable[[Router], None]
_DEVICE = 0  # device number of the switch in PTF
_QUEUE = 100_000  # frames per port; PTF silently drops the oldest when it is full


class PtfPorts:
    """Gives a probe access to the ports through PTF's data plane."""

    def __init__(self) -> None:
        self._dataplane = ptf.dataplane_instance
        self._dataplane.set_qlen(_QUEUE)
        self.numbers = tuple(sorted(port for _device, port in self._dataplane.ports))

    def send(self, port: int, frame: bytes) -> None:
        """Sends one frame into `port` of the switch."""
        self._dataplane.send(_DEVICE, port, frame)

    def receive(self, timeout: float) -> list[tuple[int, bytes]]:
        """Returns all (port, frame) received since the last call.

        Waits up to `timeout` seconds for the first frame.
        """
        first = self._dataplane.poll(_DEVICE, timeout=timeout)
        if isinstance(first, self._dataplane.PollFailure):
            return []
        with self._dataplane.cvar:
            rest = [(port, frame) for port, frame, _time in self._dataplane.packets(_DEVICE)]
        return [(first.port, first.packet), *rest]


@functools.cache
def connection() -> RuntimeClient:
    """Returns the P4Runtime session that all tests share.

    The first call also loads the pipeline.
    """
    build = Path(testutils.test_param_get("build"))
    client = RuntimeClient(
        testutils.test_param_get("address", "127.0.0.1:9559"),
        Schema.load(build),
        int(testutils.test_param_get("device_id", 1)),
    )
    atexit.register(client.close)
    client.set_pipeline(build / "router.json")
    return client


@functools.cache
def probe() -> Probe:
    """Returns the probe that all tests share."""
    return Probe(connection(), PtfPorts())


@contextlib.contextmanager
def link_down(port: int) -> Iterator[None]:
    """Sets the link of one of the switch's ports down while the context is open."""
    interface = ptf.config["port_map"][_DEVICE, port]
    subprocess.run(["ip", "link", "set", "dev", interface, "down"], check=True)
    try:
        yield
    finally:
        subprocess.run(["ip", "link", "set", "dev", interface, "up"], check=True)


def reload_pipeline() -> None:
    """Loads the program again, which deletes all forwarding state."""
    connection().set_pipeline(Path(testutils.test_param_get("build")) / "router.json")
    probe().install()


@contextlib.contextmanager
def small_flow_tables(router: Router, size: int) -> Iterator[None]:
    """Loads the program with flow tables of `size` entries; at the end, loads the original program.

    Each load deletes all forwarding state.
    """
    build = Path(testutils.test_param_get("build"))
    program = json.loads((build / "router.json").read_text())
    p4info = p4info_pb2.P4Info()
    p4info.CopyFrom(connection().schema.p4info)
    for pipeline in program["pipelines"]:
        for table in pipeline["tables"]:
            if table["name"].endswith("_flow"):
                table["max_size"] = size
    for table in p4info.tables:
        if table.preamble.alias.endswith("_flow"):
            table.size = size
    connection().load_pipeline(p4info, json.dumps(program).encode())
    probe().install()
    try:
        yield
    finally:
        router.forget()
        reload_pipeline()


def ptf_test(function: Test) -> type[BaseTest]:
    """Makes a PTF test that starts from the standard router."""

    def on_standard_router(router: Router) -> None:
        standard.set_up(router)
        function(router)

    return _case(function, on_standard_router)


def bare_ptf_test(function: Test) -> type[BaseTest]:
    """Makes a PTF test that starts from a router without interfaces, addresses and routes."""
    return _case(function, function)


def _case(named: Test, body: Test) -> type[BaseTest]:
    def run_test(_self: BaseTest) -> None:
        router = Router(connection(), probe())
        try:
            body(router)
        finally:
            router.undo()

    members = {"runTest": run_test, "__doc__": named.__doc__, "__module__": named.__module__}
    return type(named.__name__, (BaseTest,), members)
