# SPDX-License-Identifier: Apache-2.0
"""Answers `explain`: shows how the router treats one packet, and why.

Two accounts of the packet's processing are made and compared. The model's account is computed from
the controller's state (`explain_model`). The switch's account comes from dry runs in the switch
(`explain_switch`). Only sluice-switch supports dry runs. With other targets, and while no switch is
connected, the answer has only the model's account.

Depends on controller and packet_text.
"""

from __future__ import annotations

from typing import Any

from sluice.api.explain_model import (
    ListAccount,
    ModelAccount,
    ModelExplainer,
    Outcome,
    Question,
    interface_named,
)
from sluice.api.explain_switch import Ingress, SwitchAccount, SwitchRunner
from sluice.api.route_lookup import RouteLookup
from sluice.api.server import BadRequestError
from sluice.config import InterfaceConfig
from sluice.controller import Controller
from sluice.entities import EntityKind, RouteSlot
from sluice.model import Prefix, format_address
from sluice.p4.packets import PuntReason
from sluice.p4runtime.session import P4RuntimeError
from sluice.packet_text import PacketTextError, parse_packet
from sluice.policy.model import Direction, Verdict
from sluice.switch_path import ListPass, SwitchPath
from sluice.wire.errors import WireError
from sluice.wire.packet import ETHERTYPE_VLAN, local_frame
from sluice.wire.selectors import selectors

SENDER_MAC = b"\x02\x00\x00\x00\x00\x01"
"""Source MAC address of a described packet."""
FRAME_BYTES = range(14, 9217)
"""Lengths of frames that are explained, in bytes."""
_HOST_PUNTS = frozenset(
    {
        PuntReason.ARP,
        PuntReason.NEIGHBOR_DISCOVERY,
        PuntReason.ROUTING_PROTOCOL,
        PuntReason.IKE,
        PuntReason.LOCAL,
    }
)
"""Reasons to punt a packet for this router's host."""


class Explainer:
    """Answers the request `explain`."""

    def __init__(self, controller: Controller, routes: RouteLookup) -> None:
        self._controller = controller
        self._model = ModelExplainer(controller, routes)

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Explains what the router does with the packet in the request.

        The request either describes the packet in `text`, or has a `frame` in hex and the name of
        the receiving interface as `in`. Raises BadRequestError.
        """
        question = self._question(request)
        model = await self._model.explain(question)
        switch = await self._run(question, model)
        if model.route is not None and switch is not None:
            for leg in model.route["legs"]:
                leg["taken"] = leg["nexthop"] == switch.last.nexthop
        shown: dict[str, list[dict[str, Any]]] = {one.value: [] for one in Direction}
        for account in model.lists.values():
            shown[account.state.direction.value].append(self._model.shown(account))
        return {
            "packet": _packet(question),
            "interface": _interface(question.interface),
            "inbound": next(iter(shown["inbound"]), None),
            "route": model.route,
            "outbound": shown["outbound"],
            "outcome": model.outcome._asdict(),
            "switch": None if switch is None else self._switch(switch),
            "disagreements": [] if switch is None else self._disagreements(model, switch),
        }

    # -- the packet

    def _question(self, request: dict[str, Any]) -> Question:
        text, frame = request.get("text"), request.get("frame")
        if isinstance(text, str) and frame is None:
            return self._described(text)
        if isinstance(frame, str) and text is None:
            interface = interface_named(self._controller, request.get("in"))
            return self._read(_from_hex(frame), interface, interface.vrf.id)
        raise BadRequestError("text: a packet's description; or frame: a frame in hex, with `in`")

    def _described(self, text: str) -> Question:
        try:
            described = parse_packet(text)
        except PacketTextError as error:
            raise BadRequestError(str(error)) from None
        frame = local_frame(described.packet)
        if described.interface is None:
            return self._read(frame, None, self._vrf(described.vrf))
        interface = interface_named(self._controller, described.interface)
        tag = b""
        if interface.vlan:
            tag = ETHERTYPE_VLAN.to_bytes(2, "big") + interface.vlan.to_bytes(2, "big")
        received = interface.mac + SENDER_MAC + tag + frame[12:]
        return self._read(received, interface, interface.vrf.id)

    def _read(self, frame: bytes, interface: InterfaceConfig | None, vrf: int) -> Question:
        try:
            seen = selectors(frame, is_own=interface is None)
            destination = seen.selectors.destination
            slot = RouteSlot(vrf, Prefix.of(destination, 8 * len(destination)))
            own = self._controller.reconciler.installed.by_kind[EntityKind.LOCAL_PREFIX]
            if interface is not None and slot in own:
                seen = selectors(frame, is_own=True)
        except WireError as error:
            raise BadRequestError(f"the packet cannot be read: {error.name}: {error}") from None
        return Question(frame, interface, vrf, seen)

    def _vrf(self, name: str | None) -> int:
        vrfs = self._controller.config.vrfs
        for vrf in vrfs:
            if name in (None, vrf.name):
                return vrf.id
        names = ", ".join(vrf.name for vrf in vrfs)
        raise BadRequestError(f"there is no VRF {name!r}; this router has: {names}")

    # -- the switch's account

    async def _run(self, question: Question, model: ModelAccount) -> SwitchAccount | None:
        controller = self._controller
        session = controller.connection.primary
        if session is None:
            return None
        runner = SwitchRunner(session, controller.packets, controller.config.switch.cpu_port)

        def judge(list_id: int) -> Verdict | None:
            account = model.lists.get(list_id)
            return None if account is None else account.verdict

        try:
            if question.interface is None:
                return await runner.run_own(question.frame, question.vrf, judge)
            interface = question.interface
            ingress = Ingress(interface.port, interface.l3_if, question.vrf)
            return await runner.run(question.frame, ingress, judge)
        except P4RuntimeError as error:
            raise BadRequestError(f"the switch cannot trace the packet: {error}") from None

    def _switch(self, account: SwitchAccount) -> dict[str, Any]:
        last = account.last
        passes = {one: account.list_pass(one) for one in Direction}
        return {
            "runs": len(account.runs),
            "lists": {
                direction.value: {
                    "epoch": passed.epoch,
                    "generation": passed.generation,
                    "hit": passed.hit,
                    "rule_hit": passed.rule_hit,
                    "asked": direction in account.asked,
                }
                for direction, passed in passes.items()
                if passed is not None
            },
            "route": None if last.route is None else str(last.route),
            "group": last.group,
            "nexthop": last.nexthop,
            "outcome": self._outcome(account)._asdict(),
        }

    def _outcome(self, account: SwitchAccount) -> Outcome:
        """Returns the outcome of the last dry run.

        If the switch punts the packet and the controller would discard it, the outcome is `to the
        controller`.
        """
        packets, last = self._controller.packets, account.last
        if last.ports:
            port = last.ports[0]
            engines = {engine.port: engine.id for engine in self._controller.config.policy.engines}
            if port in engines:
                return Outcome("protected", f"engine {engines[port]}, port {port}")
            return Outcome("forwarded", f"port {port}")
        if last.drop_reasons:
            return Outcome("dropped", packets.drop_reasons.get(last.drop_reasons[0]))
        if last.is_punted and last.punt_reasons:
            reason = packets.reasons[last.punt_reasons[0]]
            host = "to this router" if reason in _HOST_PUNTS else "to the controller"
            return Outcome(host, reason.value)
        return Outcome("dropped")

    # -- the comparison

    def _disagreements(self, model: ModelAccount, switch: SwitchAccount) -> list[str]:
        """Returns one sentence for each difference between the model's and the switch's account."""
        found = []
        for direction in Direction:
            passed = switch.list_pass(direction)
            if passed is not None:
                differences = _list_differences(passed, model.lists.get(passed.list_id))
                found += [f"{direction.value} list: {one}" for one in differences]
        if model.route is not None:
            found += _route_differences(model.route, switch.last)
        result, reason = self._outcome(switch)
        if result == "forwarded" and model.outcome.result not in ("forwarded", "unknown"):
            found.append(
                f"outcome: the switch sends the packet in clear ({reason}); the model says:"
                f" {': '.join(filter(None, model.outcome))}"
            )
        return found


def _list_differences(passed: ListPass, account: ListAccount | None) -> list[str]:
    if account is None:
        return [f"the switch searches list {passed.list_id}; by the model, another list or none"]
    found = []
    version, verdict = account.state.version, account.verdict
    if (passed.epoch, passed.generation) != version:
        found.append(
            f"the switch has epoch {passed.epoch}, generation {passed.generation}; the model has"
            f" epoch {version.epoch}, generation {version.generation}"
        )
    if passed.hit != (account.cache == "flow"):
        state = "has" if passed.hit else "lacks"
        found.append(f"the switch {state} a current flow; the model's record says: {account.cache}")
    elif (passed.hit or passed.rule_hit) and verdict is not None:
        held = passed.rule, passed.verdict, passed.bundle
        wanted = verdict.rule_id, int(verdict.action), verdict.bundle
        if held != wanted:
            what = "the cached flow" if passed.hit else "the entry of the rule tables"
            found.append(f"{what} has (rule, verdict, bundle) {held}; the rules say {wanted}")
    return found


def _route_differences(route: dict[str, Any], path: SwitchPath) -> list[str]:
    if path.has_route is None:
        return []
    found = []
    model = None if route["route"] is None else route["route"]["prefix"]
    in_switch = str(path.route) if path.has_route else None
    if model != in_switch:
        found.append(f"route: the switch matches {in_switch}; the model has {model}")
    numbers = {leg["nexthop"] for leg in route["legs"]}
    if path.nexthop and numbers and path.nexthop not in numbers:
        known = ", ".join(map(str, sorted(numbers)))
        found.append(f"next hop: the switch takes {path.nexthop}; the model has {known}")
    return found


def _packet(question: Question) -> dict[str, Any]:
    seen = question.seen.selectors
    return {
        "source": format_address(seen.source),
        "destination": format_address(seen.destination),
        "protocol": seen.protocol,
        "source_port": seen.source_port,
        "destination_port": seen.destination_port,
        "icmp": None if seen.icmp is None else f"{seen.icmp >> 8}/{seen.icmp & 0xFF}",
        "mobility_type": seen.mobility_type,
        "fragment": question.seen.fragment_class.name.lower(),
        "own": seen.is_own,
        "bytes": len(question.frame),
    }


def _interface(interface: InterfaceConfig | None) -> dict[str, Any] | None:
    if interface is None:
        return None
    return {
        "name": interface.name,
        "port": interface.port,
        "vlan": interface.vlan or None,
        "vrf": interface.vrf.name,
        "spd": interface.spd,
    }


def _from_hex(text: str) -> bytes:
    try:
        frame = bytes.fromhex(text)
    except ValueError:
        raise BadRequestError("frame: is not in hexadecimal") from None
    if len(frame) not in FRAME_BYTES:
        bounds = f"{FRAME_BYTES.start} to {FRAME_BYTES.stop - 1}"
        raise BadRequestError(f"frame: must have {bounds} bytes, this one has {len(frame)}")
    return frame
