# SPDX-License-Identifier: Apache-2.0
"""Tests that a reload reports which keys of the configuration have changed, and for each key
whether the reload or only a restart applies the change."""

from __future__ import annotations

from pathlib import Path

import pytest

from sluice.config import Config, Isolation, load_config
from sluice.reload import differences, with_isolation_of

WHOLE = """
router: r1
state_dir: /var/lib/sluice/r1
switch: {address: "127.0.0.1:9559", cpu_port: 510}
fpm: {listen: "127.0.0.1:2620"}
audit: {rate: 100}
vrfs: {red: {table: 100}, blue: {table: 200}}
limits: {punt_queue: 1000}
spds:
  - name: corp
    flow_cache: {size: 100}
    inbound: [{name: all, action: bypass}]
    outbound: [{name: all, action: bypass}]
engines: [{id: 1, port: 9}]
interfaces:
  - {name: eth1, port: 1, mac: "02:00:00:00:01:01", addresses: [10.0.1.1/24], spd: corp}
  - {name: eth2, port: 2, mac: "02:00:00:00:01:02", vrf: red, spd: none}
"""


def read(directory: Path, text: str) -> Config:
    path = directory / "r1.yaml"
    path.write_text(text)
    return load_config(path)


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("router: r1", "router: r2", "router"),
        ("/var/lib/sluice/r1", "/var/lib/sluice/other", "state_dir"),
        ("127.0.0.1:9559", "127.0.0.1:9560", "switch.address"),
        ("red: {table: 100}", "red: {table: 101}", "vrfs.red.table"),
        ("red: {table: 100}", "red: {table: 100, isolation: shared}", "vrfs.red.isolation"),
        (", blue: {table: 200}", "", "vrfs.blue"),
        ("vrfs: {", "vrfs: {green: {table: 300}, ", "vrfs.green"),
    ],
)
def test_fixed(tmp_path: Path, old: str, new: str, key: str) -> None:
    found = differences(read(tmp_path, WHOLE), read(tmp_path, WHOLE.replace(old, new)))
    assert key in found.fixed


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("punt_queue: 1000", "punt_queue: 1001", "limits.punt_queue"),
        ("limits:", "punt_rates: {ARP: {rate: 1, burst: 200}}\nlimits:", "punt_rates.ARP.rate"),
        ("audit: {rate: 100}", "audit: {rate: 5}", "audit.rate"),
        ("inbound: [{name: all, action: bypass}]", "inbound: []", "spds.corp.rules"),
    ],
)
def test_settings(tmp_path: Path, old: str, new: str, key: str) -> None:
    found = differences(read(tmp_path, WHOLE), read(tmp_path, WHOLE.replace(old, new)))
    assert found == ((), (key,), ())


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("10.0.1.1/24", "10.0.1.2/24", "interfaces.eth1.addresses"),
        ("port: 2, mac", "port: 3, mac", "interfaces.eth2.port"),
        ("vrf: red", "vrf: blue", "interfaces.eth2.vrf"),
        ("name: eth2", "name: eth3", "interfaces.eth3"),
        ("spd: corp}", "spd: none}", "interfaces.eth1.spd"),
        ("size: 100", "size: 200", "spds.corp.flow_cache.size"),
        ("port: 9", "port: 8", "engines.1.port"),
        ("127.0.0.1:2620", "127.0.0.1:2621", "fpm.listen"),
        ("red: {table: 100}", "red: {table: 100, next_hop_vrfs: [blue]}", "vrfs.red.next_hop_vrfs"),
        ("cpu_port: 510", "cpu_port: 509", "switch.cpu_port"),
        ("audit: {rate: 100}", "audit: {file: /var/log/a}", "audit.file"),
    ],
)
def test_walked(tmp_path: Path, old: str, new: str, key: str) -> None:
    found = differences(read(tmp_path, WHOLE), read(tmp_path, WHOLE.replace(old, new)))
    assert key in found.by_restart
    assert found.fixed == ()


def test_the_order_of_interfaces_is_no_difference(tmp_path: Path) -> None:
    *head, first, second = WHOLE.rstrip().splitlines()
    turned = "\n".join([*head, second, first])
    assert differences(read(tmp_path, WHOLE), read(tmp_path, turned)).all == ()


def test_vrfs_stay_where_they_are(tmp_path: Path) -> None:
    """Checks that a reload keeps the isolation that each running VRF has, also in the VRFs of the
    interfaces.

    Without isolation, an interface would count as a part of the default VRF's stack.
    """
    new = read(tmp_path, WHOLE)
    running = read(tmp_path, WHOLE.replace("table: 100", "table: 100, isolation: namespace"))
    decided = with_isolation_of(new, running)
    assert [vrf.isolation for vrf in decided.vrfs] == [None, Isolation.NAMESPACE, None]
    assert decided.interfaces[1].vrf.isolation is Isolation.NAMESPACE
