# SPDX-License-Identifier: Apache-2.0
"""Writes the audit log of the events that RFC 4301 requires to be auditable.

Logs packets that policy refused (unknown SPI, cleartext that must be protected, forged shim,
discard by a rule with `audit: true`, refused ICMP errors, dropped fragments). Logs the values for
which a rule with `from_packet` has no SA. Logs each change of policy with its requester.

A token bucket limits each event type. Suppressed events are counted, and the next logged event of
the type reports their number. No function of this module raises an exception, not even for a
malformed packet or a full disk.

docs/how-to/policy.md describes the fields. Depends on config, state.spd, audit_file and
wire.readable.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from itertools import compress
from operator import itemgetter
from typing import Any, NamedTuple

from sluice.audit_file import AuditFile
from sluice.config import Config
from sluice.model import PuntedPacket
from sluice.policy.model import Direction, Rule
from sluice.state.spd import FINAL_DISCARD, PolicyList, changed_since
from sluice.wire.readable import readable

WRONG_SA = "wrong sa"
DROPS = {
    "UNKNOWN_SPI": "spi unknown",
    "AH_NO_SA": "spi unknown",
    "INBOUND_CLEARTEXT": "cleartext refused",
    "INBOUND_WRONG_SA": WRONG_SA,
    "FORGED_SHIM": "forged shim",
    "SHIM_INVALID": "invalid shim",
}
"""Event names by the pipeline's drop reason. Every other reason has the name OTHER_DROP."""
OTHER_DROP = "packet dropped"
DISCARDED = "discarded"
ERROR_REFUSED = "icmp error refused"
FRAGMENT_DROPPED = "fragment dropped"
REPAIRED = "switch repaired"
POLICY_CHANGED = "policy changed"
ACQUIRED = "sa wanted"


_AUDIT = itemgetter(Rule._fields.index("audit"))


class Requester(NamedTuple):
    """Identifies the client process of an API connection, as the kernel reports it."""

    uid: int
    pid: int


REQUESTED_BY: ContextVar[Requester | None] = ContextVar("asked_by", default=None)
"""The API client whose request is being served. None: this router itself."""


class ListChange(NamedTuple):
    """Holds a list before and after a change, and the numbers of rules that the change adds and
    removes. `before` is None if the earlier list is unknown."""

    before: PolicyList | None
    after: PolicyList
    added: int = 0
    removed: int = 0

    @classmethod
    def of(cls, before: PolicyList | None, after: PolicyList) -> ListChange:
        """Compares two lists. Slow for long lists that have little in common."""
        if before is None:
            return cls(None, after)
        start, end, end_before = changed_since(before, after)
        old, new = set(before.fingerprints[start:end_before]), set(after.fingerprints[start:end])
        return cls(before, after, len(new - old), len(old - new))


class AuditLog:
    """Writes the audit log of one router.

    `wall` returns the wall-clock time in seconds since the Unix epoch. `lists` returns the list
    with a given number. It is needed because packet metadata has only the number.
    """

    def __init__(self, config: Config, wall: Callable[[], float] = time.time) -> None:
        self.counters: Counter[str] = Counter()
        self.lists: Callable[[int], PolicyList | None] = lambda _: None
        names = {number: name for name, number in config.policy.bundle_ids().items()}
        self.bundle_name: Callable[[int], str | None] = names.get
        """Returns the name of the bundle with a number."""
        self._file = AuditFile(config.audit.file)
        self._rate = config.audit.rate
        self._wall = wall
        self._router = config.router
        self._interfaces = {one.l3_if: one.name for one in config.interfaces}
        self._interfaces |= {one.l3_if: f"engine {one.id}" for one in config.policy.engines}
        self._vrfs = {one.id: one.name for one in config.vrfs}
        self._buckets: dict[str, _Bucket] = {}
        self._audited: dict[int, tuple[PolicyList, frozenset[int]]] = {}

    def close(self) -> None:
        """Closes the file. The next event opens it again."""
        self._file.close()

    def set_rate(self, rate: int) -> None:
        """Sets the limit of each event type, in events a second."""
        self._rate = rate
        for bucket in self._buckets.values():
            bucket.rate = rate

    # -- events

    def packet_dropped(self, reason_name: str, packet: PuntedPacket, now: float) -> None:
        """Logs a packet that the pipeline dropped. `reason_name` is the drop reason."""
        event = DROPS.get(reason_name, OTHER_DROP)
        if self._may_write(event, now):
            state = self.lists(packet.list_id or packet.inbound_list_id)
            fields = {"reason": reason_name} | self._list_fields(state, packet.rule)
            self._write(event, fields | self._packet_fields(packet))

    def discarded(self, packet: PuntedPacket, state: PolicyList, rule_id: int, now: float) -> None:
        """Logs a packet that the controller discarded by a rule of this list with `audit`.

        The flow cache then discards the flow's later packets, which are not logged. Packets of
        rules without `audit` are logged only if a bundle carried them, because such a packet does
        not match the selectors of its SA (RFC 4301, 5.2, step 4).
        """
        is_wrong_sa = bool(packet.bundle) and state.direction is Direction.INBOUND
        event = WRONG_SA if is_wrong_sa else DISCARDED
        if (is_wrong_sa or rule_id in self._audited_ids(state)) and self._may_write(event, now):
            fields = self._list_fields(state, rule_id)
            self._write(event, fields | self._packet_fields(packet))

    def error_refused(
        self, packet: PuntedPacket, state: PolicyList, reason: str, now: float
    ) -> None:
        """Logs an ICMP error that was dropped because of the packet it quotes (RFC 4301, 6.2)."""
        if self._may_write(ERROR_REFUSED, now):
            fields = {"reason": reason} | self._list_fields(state, state.final_id)
            self._write(ERROR_REFUSED, fields | self._packet_fields(packet))

    def fragment_dropped(self, packet: PuntedPacket, reason: str, now: float) -> None:
        """Logs a fragment that cannot get the verdict of its datagram (RFC 4301, 7.3)."""
        if self._may_write(FRAGMENT_DROPPED, now):
            fields = {"reason": reason} | self._list_fields(self.lists(packet.list_id), 0)
            self._write(FRAGMENT_DROPPED, fields | self._packet_fields(packet))

    def acquired(
        self, packet: PuntedPacket, bundle: str, traffic: Mapping[str, str | int], now: float
    ) -> None:
        """Logs a packet that was dropped because no SA carries packets with its values. `traffic`
        has these values, in the form of `security_associations`."""
        if self._may_write(ACQUIRED, now):
            fields = self._list_fields(self.lists(packet.list_id), packet.rule)
            fields |= {"to": bundle, "traffic": dict(traffic)}
            self._write(ACQUIRED, fields | self._packet_fields(packet))

    def policy_changed(
        self, change: str, spds: Iterable[str], lists: Iterable[ListChange], now: float
    ) -> None:
        """Logs a change of SPDs, with the lists whose rules or version numbers have changed."""
        if self._may_write(POLICY_CHANGED, now):
            asker = REQUESTED_BY.get()
            self._write(
                POLICY_CHANGED,
                {
                    "change": change,
                    "spds": list(spds),
                    "asked_by": "router" if asker is None else asker._asdict(),
                    "lists": [_list_change(one) for one in lists],
                },
            )

    def repaired(self, what: str, found: str, put: str, now: float) -> None:
        """Logs the auditor's repair of an entry that another client wrote to the switch."""
        if self._may_write(REPAIRED, now):
            self._write(REPAIRED, {"what": what, "found": found, "put": put})

    # -- fields

    def _packet_fields(self, packet: PuntedPacket) -> dict[str, Any]:
        number = packet.ingress_l3_if
        fields: dict[str, Any] = {"vrf": self._vrfs.get(packet.vrf, packet.vrf)}
        if number:
            fields["interface"] = self._interfaces.get(number, number)
        if packet.bundle:
            fields["bundle"] = self.bundle_name(packet.bundle) or packet.bundle
        return fields | readable(packet.frame)

    @staticmethod
    def _list_fields(state: PolicyList | None, rule_id: int) -> dict[str, Any]:
        if state is None:
            return {}
        fields: dict[str, Any] = {"spd": state.spd, "list": state.direction.value}
        if rule_id == state.final_id:
            fields["rule"] = FINAL_DISCARD
        elif rule_id in state.rule_ids:
            fields["rule"] = state.rules[state.rule_ids.index(rule_id)].name
        return fields

    def _audited_ids(self, state: PolicyList) -> frozenset[int]:
        """Returns the ids of a list's rules that have `audit`. Caches the result for each list."""
        known = self._audited.get(state.list_id)
        if known is None or known[0] is not state:
            audited = frozenset(compress(state.rule_ids, map(_AUDIT, state.rules)))
            known = self._audited[state.list_id] = state, audited
        return known[1]

    # -- writing

    def _may_write(self, event: str, now: float) -> bool:
        bucket = self._buckets.get(event)
        if bucket is None:
            bucket = self._buckets[event] = _Bucket(self._rate, now)
        if bucket.take(now):
            return True
        self.counters[f"suppressed: {event}"] += 1
        return False

    def _write(self, event: str, fields: dict[str, Any]) -> None:
        at = datetime.fromtimestamp(self._wall(), UTC).isoformat(timespec="microseconds")
        line = {"time": at.replace("+00:00", "Z"), "event": event, "router": self._router} | fields
        bucket = self._buckets[event]
        if bucket.suppressed:
            line["suppressed"] = bucket.suppressed
        if self._file.append(json.dumps(line, separators=(",", ":"))):
            bucket.suppressed = 0
            self.counters[f"written: {event}"] += 1
        else:
            self.counters["lost: the file cannot be written"] += 1


class _Bucket:
    """Limits events to `rate` a second by a token bucket, with a burst of `rate` events.

    `suppressed` counts the events refused since the last logged event.
    """

    def __init__(self, rate: int, now: float) -> None:
        self.suppressed = 0
        self.rate = rate
        self._tokens = float(rate)
        self._at = now

    def take(self, now: float) -> bool:
        self._tokens = min(self.rate, self._tokens + max(0.0, now - self._at) * self.rate)
        self._at = now
        if self._tokens < 1:
            self.suppressed += 1
            return False
        self._tokens -= 1
        return True


def _list_change(change: ListChange) -> dict[str, Any]:
    before, after, added, removed = change
    fields: dict[str, Any] = {
        "spd": after.spd,
        "list": after.direction.value,
        "rules": len(after.rules),
        "digest": after.digest,
        "epoch": after.version.epoch,
        "generation": after.version.generation,
    }
    if before is not None:
        fields |= {"digest_before": before.digest, "added": added, "removed": removed}
    return fields
