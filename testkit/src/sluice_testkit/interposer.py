# SPDX-License-Identifier: Apache-2.0
"""Between a controller and its switch: messages held, released or dropped when a test says so.

The messages pass a process of its own in the router's namespace (`p4runtime_proxy`); this is how a
test talks to it. Standard library only.

    with interposer.hold("packet_out", stage="OUTBOUND") as answers:
        ...                     # send a packet that misses
        answers.wait_for(1)     # the controller has answered, the switch has not heard of it
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
    """One proxy. The controller connects to `address` instead of to the switch, at `switch`."""

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
        """Start it and wait until it listens. The switch need not run yet."""
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
        """Holds messages whose facts match `wanted`; forwards the rest when the block ends."""
        gate = self._gate(kind, "hold", wanted)
        try:
            yield gate
        finally:
            gate.open()

    @contextlib.contextmanager
    def drop(self, kind: MessageKind, /, **wanted: object) -> Iterator["Gate"]:
        """Lose messages whose facts are as wanted."""
        gate = self._gate(kind, "drop", wanted)
        try:
            yield gate
        finally:
            gate.open()

    def _gate(self, kind: MessageKind, mode: str, wanted: MessageFields) -> "Gate":
        self.ask(do="set", kind=kind, mode=mode, wanted=wanted)
        return Gate(self, kind)

    # -- what the switch was told, and what it holds

    def written(self) -> dict[str, int]:
        """Updates that the controller has asked for so far, such as `INSERT outbound.ipv4_flow`."""
        written = self.ask(do="written")
        assert isinstance(written, dict)
        return written

    def sessions(self) -> int:
        """How many sessions the controller has begun so far."""
        return int(self.ask(do="streams"))

    def hang_up(self) -> None:
        """End the session, as a broken connection would, and wait until another has begun."""
        before = self.sessions()
        self.ask(do="hang up")
        wait_until(lambda: self.sessions() > before, 20, "another session")

    def entries(self, table: str, **like: int) -> list[MessageFields]:
        """The entries like this in a table, by the switch's own account: fields and parameters."""
        entries = self.ask(do="entries", device_id=self._device_id, table=table)
        return [one for one in entries if all(one[name] == value for name, value in like.items())]

    def ask(self, **request: object) -> Any:
        """One request of `p4runtime_proxy.Control`."""
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
    """One kind of message, while some of it is held or dropped."""

    def __init__(self, interposer: Interposer, kind: MessageKind) -> None:
        self._interposer = interposer
        self._kind = kind

    def held(self) -> list[MessageFields]:
        """Returns the facts of the held messages, oldest first."""
        held = self._interposer.ask(do="held", kind=self._kind)
        assert isinstance(held, list)
        return held

    def wait_for(self, count: int, deadline: float = 10.0) -> list[MessageFields]:
        """Wait until `count` messages are held, or more; return all."""

        def enough() -> list[MessageFields]:
            held = self.held()
            return held if len(held) >= count else []

        return wait_until(enough, deadline, f"{count} held messages ({self._kind})")

    def dropped(self) -> int:
        """How many were dropped on arrival."""
        return int(self._interposer.ask(do="dropped", kind=self._kind))

    def release(self, count: int | None = None) -> int:
        """Send the oldest `count` on (all), in their order; how many that was."""
        return self._release_held(True, count)

    def discard(self, count: int | None = None) -> int:
        """Lose the oldest `count` of those held (all)."""
        return self._release_held(False, count)

    def open(self) -> None:
        """Let everything pass from now on, what is held first."""
        self._interposer.ask(do="set", kind=self._kind, mode="pass", wanted={})

    def _release_held(self, on: bool, count: int | None) -> int:
        return int(self._interposer.ask(do="let go", kind=self._kind, on=on, count=count))
