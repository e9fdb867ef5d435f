# SPDX-License-Identifier: Apache-2.0
"""Runs one test, from start to verdict.

Depends on all modules but report. Statements are executed in order. Before a control statement, the
runner waits until the packets that are expected so far have left. Before the verdict, it waits
until no packet has left for QUIET_SECONDS. At these points, p4c's own runner sleeps for a fixed
time.
"""

from __future__ import annotations

import operator
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from sluice_conformance import stf
from sluice_conformance.client import Client, Refused
from sluice_conformance.compiler import Compiled
from sluice_conformance.control import Control
from sluice_conformance.corpus import Test
from sluice_conformance.program import Program, UnknownName
from sluice_conformance.target import DEVICE_ID, Interpreted, Target, TargetDied
from sluice_conformance.verdict import GOOD, Result, Verdict, difference
from sluice_testkit.wait import Timeout, wait_until

# Longest wait for an expected packet. A test that passes waits less.
PACKET_SECONDS = 3.0
# If no packet leaves for this time, the runner expects no more packets.
QUIET_SECONDS = 0.15
_RELATIONS = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class CounterDiffers(Exception):
    """A counter has another value than the script expects."""


def run(test: Test, compiled: Compiled, target: str) -> Verdict:
    """Runs a test. An expected failure is a good result; a test that passes unexpectedly is not."""
    start = time.monotonic()
    verdict = _verdict_of(test, compiled, target)
    good = verdict.result in GOOD
    if test.expected_failure or (test.may_fail and not good):
        turned = Result.UNEXPECTED_PASS if good else Result.EXPECTED_FAILURE
        verdict = Verdict(turned, f"{verdict.result}: {verdict.reason}")
    return replace(verdict, seconds=round(time.monotonic() - start, 3))


def _verdict_of(test: Test, compiled: Compiled, target: str) -> Verdict:
    if compiled.error is not None:
        return Verdict(Result.NOT_COMPILED, compiled.error)
    try:
        script = [] if test.script is None else stf.parse(test.script.read_text(encoding="utf-8"))
    except stf.StfError as error:
        return Verdict(Result.SCRIPT, str(error))
    try:
        with tempfile.TemporaryDirectory(prefix="sluice-stf-") as folder:
            different = _Run(script, compiled).on(target, Path(folder))
    except Refused as error:
        return Verdict(Result.REFUSED, str(error))
    except (UnknownName, ValueError, LookupError) as error:
        return Verdict(Result.SCRIPT, str(error))
    except Interpreted as error:
        return Verdict(Result.INTERPRETED, str(error))
    except (TargetDied, CounterDiffers, Timeout) as error:
        return Verdict(Result.DIFFERS, str(error))
    if different is not None:
        return Verdict(Result.DIFFERS, different)
    return Verdict(Result.LOADS if test.script is None else Result.PASS)


class _Run:
    """Executes one script."""

    def __init__(self, script: list[tuple[int, stf.Statement]], compiled: Compiled):
        self._script = script
        self._json = compiled.json.read_bytes()
        self._program = Program.load(compiled.json, compiled.p4info)
        self._control = Control(self._program)
        self._expected: defaultdict[int, list[stf.Expect]] = defaultdict(list)

    def on(self, target_name: str, folder: Path) -> str | None:
        """Executes the script on a fresh switch. Returns what differs, or None."""
        inputs = {s.port: line for line, s in self._script if isinstance(s, stf.Packet)}
        ports = inputs.keys() | {s.port for _, s in self._script if isinstance(s, stf.Expect)}
        with Target(target_name, ports, folder) as target:
            with Client(target.address, DEVICE_ID) as client:
                client.load(self._program.p4info, self._json)
                target.check_machine_code()
                for port in ports - inputs.keys():
                    target.close_input(port)
                for line, statement in self._script:
                    self._step(statement, target, client)
                    if isinstance(statement, stf.Packet) and inputs[statement.port] == line:
                        target.close_input(statement.port)
            target.wait_for_frames(self._expected_count(), PACKET_SECONDS)
            wait_for_silence(target, QUIET_SECONDS)
            target.check()
            return difference(self._expected, target.sent())

    def _step(self, statement: stf.Statement, target: Target, client: Client) -> None:
        match statement:
            case stf.Packet(port, data):
                target.send(port, data)
            case stf.Expect(port):
                self._expected[port].append(statement)
            case stf.Wait():
                self._settle(target)
            case stf.CheckCounter():
                self._settle(target)
                self._check(statement, client)
            case _:
                self._settle(target)
                update = self._control.update(statement)
                if update is not None:
                    client.write(update)

    def _expected_count(self) -> int:
        return sum(len(wanted) for wanted in self._expected.values())

    def _settle(self, target: Target) -> None:
        """Waits until the packets that are expected so far have left.

        The wait is short, because a script may state an expected packet before it sends the packet
        that causes it.
        """
        target.wait_for_frames(self._expected_count(), 0.0 if target.merges_inputs else 1.0)

    def _check(self, check: stf.CheckCounter, client: Client) -> None:
        entity, kind = self._control.count(check)
        seen: list[int] = []

        def holds() -> bool:
            data = getattr(client.read_one(entity), kind).data
            seen.append(data.packet_count)
            return bool(_RELATIONS[check.relation](seen[-1], check.value))

        if check.unit != "packets":
            # In p4c's scripts, bytes include the frame check sequence, which no pcap stream has.
            client.read_one(entity)
            return
        try:
            wait_until(holds, PACKET_SECONDS, "the counter")
        except Timeout:
            wanted = f"{check.unit} {check.relation} {check.value}"
            raise CounterDiffers(
                f"{check.counter}({check.cell}) is {seen[-1]}, not {wanted}"
            ) from None


def wait_for_silence(target: Target, seconds: float) -> None:
    """Waits until no packet has left for `seconds` seconds."""
    count = -1
    while count != (count := sum(len(found) for found in target.sent().values())):
        target.wait_for_frames(count + 1, seconds)
