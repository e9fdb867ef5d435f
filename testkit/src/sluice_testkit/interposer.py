# SPDX-License-Identifier: Apache-2.0
"""Holds, releases or drops messages between a controller and its switch, as a test requests.

All messages pass through a proxy process in the router's namespace (`p4runtime_proxy`). This module
is the test's client of that proxy. It uses the standard library only.

    with interposer.hold("packet_out", stage="OUTBOUND") as answers:
        ...                     # send a packet that misses the flow cache
        answers.wait_for(1)     # the controller has answered; the proxy holds the answer
        ...                     # change something
        answers.release()
"""

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from sluice_testkit import where
from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import Process, Supervisor
from sluice_testkit.wait import wait_until

MessageKind = Literal["packet_in", "packet_out", "write", "answer"]
MessageFields = dict[str, Any]
PORT = 9560


class Interposer:
    """Runs one proxy. The controller connects to the proxy at `address`, and the proxy to the
    switch at `switch`.
    """

    def __init__(
        self,
        namespace: Namespace,
        switch: str,
        directory: Path,
        supervisor: Supervisor,
        *,
        port: int = PORT,
        device_id: int = 1,
    ) -> None:
        self.address = f"127.0.0.1:{port}"
        self._device_id = device_id
        self._namespace = namespace
        self.switch = switch
        self._control = directory / "interposer.sock"
        self._supervisor = supervisor
        self.process: Process | None = None

    def start(self) -> None:
        """Starts the proxy and waits until it listens. The switch need not run yet."""
        argv = [str(where.controller_python()), "-m", "sluice_testkit.p4runtime_proxy"]
        argv += ["--listen", self.address, "--switch", self.switch]
        argv += ["--p4info", str(where.pipeline() / "router.p4info.txtpb")]
        argv += ["--control", str(self._control)]
        process = self._supervisor.start("interposer", self._namespace.argv(argv))
        self.process = process

        def listens() -> bool:
            process.check()
            return self._control.exists()

        wait_until(listens, 20, "the interposer to listen")

    # -- gates

    @contextlib.contextmanager
    def hold(self, kind: MessageKind, /, **wanted: object) -> Iterator["Gate"]:
        """Holds messages whose fields match `wanted`. Forwards those still held when the block
        ends.
        """
        gate = self._gate(kind, "hold", wanted)
        try:
            yield gate
        finally:
            gate.open()

    @contextlib.contextmanager
    def drop(self, kind: MessageKind, /, **wanted: object) -> Iterator["Gate"]:
        """Drops messages whose fields match `wanted`, until the block ends."""
        gate = self._gate(kind, "drop", wanted)
        try:
            yield gate
        finally:
            gate.open()

    def _gate(self, kind: MessageKind, mode: str, wanted: MessageFields) -> "Gate":
        self.ask(do="set", kind=kind, mode=mode, wanted=wanted)
        return Gate(self, kind)

    # -- updates of the controller, and entries of the switch

    def written(self) -> dict[str, int]:
        """Returns the number of updates that the controller has sent, by update type and table.

        A key is for example `INSERT outbound.ipv4_flow`.
        """
        written = self.ask(do="written")
        assert isinstance(written, dict)
        return written

    def sessions(self) -> int:
        """Returns how many sessions the controller has begun since the proxy started."""
        return int(self.ask(do="streams"))

    def hang_up(self) -> None:
        """Closes the controller's session, like a broken connection.

        Returns when the controller has begun a new session.
        """
        before = self.sessions()
        self.ask(do="hang up")
        wait_until(lambda: self.sessions() > before, 20, "the controller to begin another session")

    def entries(self, table: str, **like: int) -> list[MessageFields]:
        """Reads a table from the switch.

        Returns the entries whose fields and parameters match `like`.
        """
        entries = self.ask(do="entries", device_id=self._device_id, table=table)
        return [one for one in entries if all(one[name] == value for name, value in like.items())]

    def ask(self, **request: object) -> Any:
        """Sends one request to the proxy (see `p4runtime_proxy.Control`) and returns the answer."""
        if self.process is not None:
            self.process.check()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(20)
            connection.connect(str(self._control))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                line = answers.readline()
        assert line, f"the interposer has no answer to {request}"
        return json.loads(line)


class Gate:
    """Holds or drops matching messages of one kind, such as `packet_in` or `write`."""

    def __init__(self, interposer: Interposer, kind: MessageKind) -> None:
        self._interposer = interposer
        self._kind = kind

    def held(self) -> list[MessageFields]:
        """Returns the fields of the held messages, oldest first."""
        held = self._interposer.ask(do="held", kind=self._kind)
        assert isinstance(held, list)
        return held

    def wait_for(self, count: int, deadline: float = 10.0) -> list[MessageFields]:
        """Waits until at least `count` messages are held. Returns all held messages."""

        def enough() -> list[MessageFields]:
            held = self.held()
            return held if len(held) >= count else []

        return wait_until(enough, deadline, f"{count} held messages ({self._kind})")

    def dropped(self) -> int:
        """Returns how many messages were dropped on arrival since the gate was set."""
        return int(self._interposer.ask(do="dropped", kind=self._kind))

    def release(self, count: int | None = None) -> int:
        """Forwards the oldest `count` held messages in order (default: all).

        Returns their number.
        """
        return self._release_held(True, count)

    def discard(self, count: int | None = None) -> int:
        """Drops the oldest `count` held messages (default: all). Returns their number."""
        return self._release_held(False, count)

    def open(self) -> None:
        """Opens the gate: forwards the held messages, and all later messages when they arrive."""
        self._interposer.ask(do="set", kind=self._kind, mode="pass", wanted={})

    def _release_held(self, on: bool, count: int | None) -> int:
        return int(self._interposer.ask(do="let go", kind=self._kind, on=on, count=count))
