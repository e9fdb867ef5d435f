# SPDX-License-Identifier: Apache-2.0
"""Tests when a stand-in forwards packets, when it ends, and which P4Runtime role it uses. All this
depends on the messages of the switch."""

from __future__ import annotations

import os
import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from sluice.sources import stand_in as module
from sluice.sources.stand_in import ROLE, StandIn, check_owner

OURS = (3, 77)
"""Election id of the controller that was killed."""
OTHERS = (4, 5)
NONE, OTHER = 5, 6
"""Status codes of an arbitration: no primary; another controller is primary."""
TABLES: dict[str, Any] = {
    "switch": ("127.0.0.1:9559", 1, None, None),
    "has_roles": True,
    "primary": OURS,
    "rules": {"told_limit": 1},
    "interfaces": ([(11, 1, 0, [], (), ())], {}),
    "packet_in": [(1, 8)],
    "packet_out": [(1, 2)],
    "packets_in": (1, [0, 1]),
    "packets_out": (1, [1, 2]),
}
Event = tuple[Any, ...]


def arbitration(code: int, highest: tuple[int, int]) -> Event:
    return ("arbitration", code == 0, code, "", highest)


class FakeClient:
    """Simulates a session with the switch. `script` holds the switch's messages, by the session's
    role.
    """

    made: list[FakeClient]
    script: dict[str | None, list[Event]]

    def __init__(
        self, address: str, device_id: int, election_id: tuple[int, int], **options: Any
    ) -> None:
        self.election_id, self.options = election_id, options
        self.role = options.get("role")
        self.asked: list[tuple[int, int]] = []
        self.metadata: Any = None
        self.closed = False
        self._event = os.eventfd(1)
        self.made.append(self)

    def fileno(self) -> int:
        return self._event

    def poll(self, _: int) -> list[Event]:
        script = self.script[self.role]
        return [script.pop(0)] if script else []

    def arbitrate(self, election_id: tuple[int, int]) -> None:
        self.asked.append(election_id)

    def set_packet_metadata(self, packet_in: Any, packet_out: Any) -> None:
        self.metadata = packet_in, packet_out

    def close(self) -> None:
        self.closed = True
        os.close(self._event)


class FakeTaps:
    """Fakes a set of TAPs. Records the TAPs that joined."""

    joined: list[tuple[str, int, int]]
    closed: bool

    def __init__(self, **_: Any) -> None:
        pass

    def join(self, name: str, index: int, queue: int) -> None:
        self.joined.append((name, index, queue))

    def close(self) -> None:
        FakeTaps.closed = True


class FakePath:
    """Fakes a fast path that accepts any tables."""

    def __init__(self, **_: Any) -> None:
        pass

    def set_interfaces(self, *_: Any) -> None:
        pass


@pytest.fixture(autouse=True)
def fakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "P4RuntimeClient", FakeClient)
    monkeypatch.setattr(module, "TapSet", FakeTaps)
    monkeypatch.setattr(module, "FastPath", FakePath)
    monkeypatch.setattr(socket, "if_nametoindex", {"eth1": 11, "eth2": 12}.__getitem__)
    FakeClient.made, FakeTaps.joined, FakeTaps.closed = [], [], False


def run_scenario(
    default: list[Event], own_role: list[Event] | None = None, *, has_roles: bool = True
) -> list[FakeClient]:
    """Runs a stand-in. Returns those of its sessions that forwarded packets.

    The arguments are the switch's messages to the session in the default role, and to the session
    in the stand-in's own role.
    """
    FakeClient.script = {None: default, ROLE: own_role or []}
    begin = time.monotonic()
    with ExitStack() as stack:
        StandIn(TABLES | {"has_roles": has_roles}, {"eth1": 101, "eth2": 102}, stack).run(
            begin + 0.3
        )
    assert all(client.closed for client in FakeClient.made)
    return [client for client in FakeClient.made if client.metadata is not None]


def test_with_no_primary_it_carries_in_a_role_that_may_do_nothing_else() -> None:
    (carrier,) = run_scenario([arbitration(NONE, OURS)], [arbitration(0, (1, 1))])
    assert carrier.role == ROLE
    assert carrier.options["packets_only"] == ((1, [0, 1]), (1, [1, 2]))
    assert carrier.metadata == ([(1, 8)], [(1, 2)])
    assert FakeTaps.joined == [("eth1", 11, 101)], "only the TAPs of the tables are joined"
    assert FakeTaps.closed


def test_its_backup_loses_to_every_controller_that_asks() -> None:
    run_scenario([arbitration(NONE, OURS)])
    high, low = FakeClient.made[0].election_id
    assert high == 0
    assert 1 <= low <= module.QUESTIONS


def test_where_another_controller_is_primary_it_carries_nothing() -> None:
    assert run_scenario([arbitration(OTHER, OTHERS), arbitration(NONE, OTHERS)]) == []
    assert len(FakeClient.made) == 1


def test_it_waits_while_the_switch_takes_its_controller_for_alive() -> None:
    carriers = run_scenario(
        [arbitration(OTHER, OURS), arbitration(NONE, OURS)], [arbitration(0, (1, 1))]
    )
    assert [one.role for one in carriers] == [ROLE]


def test_while_the_switch_takes_its_controller_for_alive_it_carries_nothing() -> None:
    assert run_scenario([arbitration(OTHER, OURS)], [arbitration(0, (1, 1))]) == []


@pytest.mark.parametrize(
    "last", [arbitration(OTHER, OTHERS), arbitration(OTHER, OURS), ("closed", 14, "")]
)
def test_it_is_over_when_somebody_is_primary_or_the_switch_is_gone(last: Event) -> None:
    default = [arbitration(NONE, OURS), ("connected",), last, arbitration(NONE, OTHERS)]
    run_scenario(default, [arbitration(0, (1, 1))])
    assert default == [arbitration(NONE, OTHERS)], (
        "the stand-in must not read messages after its end"
    )


@pytest.mark.parametrize("last", [arbitration(OTHER, (2, 1)), ("closed", 14, "")])
def test_it_is_over_when_another_stands_in(last: Event) -> None:
    own_role = [arbitration(0, (1, 1)), last, ("connected",)]
    run_scenario([arbitration(NONE, OURS)], own_role)
    assert own_role == [("connected",)]


def test_it_asks_above_the_stand_in_of_a_controller_before() -> None:
    (carrier,) = run_scenario(
        [arbitration(NONE, OURS)], [arbitration(NONE, (7, 9)), arbitration(0, (8, 1))]
    )
    assert carrier.asked == [(8, 1)]


def test_it_does_not_ask_for_ever() -> None:
    own_role = [arbitration(OTHER, (7 + n, 9)) for n in range(10)]
    assert run_scenario([arbitration(NONE, OURS)], own_role) == []
    assert len(own_role) == 10 - 1 - module.ATTEMPTS


def test_a_target_without_roles_has_its_backup_carry_until_it_is_displaced() -> None:
    default = [arbitration(0, (0, 5)), arbitration(OTHER, OTHERS), ("connected",)]
    (carrier,) = run_scenario(default, has_roles=False)
    assert carrier.role is None
    assert default == [("connected",)]


def test_a_target_without_roles_may_take_its_controller_for_alive_first() -> None:
    (carrier,) = run_scenario([arbitration(OTHER, OURS), arbitration(0, (0, 5))], has_roles=False)
    assert carrier.role is None


def test_a_switch_that_has_seen_no_primary_is_empty() -> None:
    assert run_scenario([arbitration(0, (0, 5))]) == []


def test_by_tables_of_a_controller_before_the_last_it_carries_nothing() -> None:
    """Checks that a stand-in forwards nothing if its tables are not those of the latest controller.

    Only the keeper of the latest controller may stand in.
    """
    assert run_scenario([arbitration(NONE, OTHERS)], [arbitration(0, (1, 1))]) == []


def test_a_socket_of_another_users_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "switch.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        check_owner(f"unix:{path}")
        if os.geteuid() != 0:
            return
        os.chown(path, 65534, 65534)
        with pytest.raises(PermissionError):
            check_owner(f"unix:{path}")
