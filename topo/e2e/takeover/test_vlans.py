# SPDX-License-Identifier: Apache-2.0
"""Tests that the VLANs of a network card are taken over with it, on a kernel that has VLAN devices.

`make prove-takeover` runs these tests on Debian's stock kernel.
"""

import pytest

from sluice_testkit.namespaces import Namespace
from sluice_topo import probes
from sluice_topo.kernel_router import KernelRouter

from ..kernel import has_vlan_devices

VLAN = 100


@pytest.fixture
def tagged(router: KernelRouter) -> KernelRouter:
    """Returns a router with VLAN 100 on eth1, in addition to the untagged network."""
    if not has_vlan_devices(router.namespace, "eth1"):
        pytest.skip("this kernel has no VLAN devices")
    for place, card, number in (
        (router.namespace, "eth1", 1),
        (router.hosts[0].namespace, "eth0", 2),
    ):
        add_vlan(place, card, VLAN, f"10.0.{VLAN}.{number}/24", f"2001:db8:{VLAN}::{number}/64")
    return router


def add_vlan(place: Namespace, card: str, vlan: int, *addresses: str) -> None:
    device = f"{card}.{vlan}"
    words = ("name", device, "link", card, "type", "vlan", "id", str(vlan))
    place.run("ip", "link", "add", *words)
    place.link_up(device)
    place.add_address(device, *addresses)


@pytest.mark.parametrize("version", [4, 6])
def test_switch_forwards_between_a_vlan_and_a_card(tagged: KernelRouter, version: int) -> None:
    h1, h2 = tagged.hosts[:2]
    source = f"10.0.{VLAN}.2" if version == 4 else f"2001:db8:{VLAN}::2"
    place = h1.namespace
    gateway = f"10.0.{VLAN}.1" if version == 4 else f"2001:db8:{VLAN}::1"
    place.run("ip", f"-{version}", "route", "replace", "default", "via", gateway)
    tagged.up()
    kernel, switch = probes.kernel_forwarded(tagged.namespace), tagged.switch_packets()
    for size in (56, 1400):
        done = probes.ping(place, h2.address(version), size=size, options=("-I", source))
        assert done.lost == 0
    assert tagged.switch_packets() - switch >= 20
    assert probes.kernel_forwarded(tagged.namespace) == kernel
    shown = {one["name"]: one for one in tagged.show("interfaces")}
    assert shown["eth1.100"]["received"]["packets"] >= 10
    assert probes.ping(place, gateway).lost == 0


def test_vlan_is_shown_and_named(tagged: KernelRouter) -> None:
    told = tagged.command("up", "--dry-run", "eth1", "eth2").stdout
    assert f"  eth1.{VLAN}, VLAN {VLAN}, " in told
    done = tagged.command("up", f"eth1.{VLAN}", check=False)
    assert f"eth1.{VLAN}: is a VLAN of eth1; name eth1" in done.stderr


def test_vlan_that_is_added_later_stays_with_the_kernel(tagged: KernelRouter) -> None:
    h1, h2 = tagged.hosts[:2]
    tagged.up()
    add_vlan(tagged.namespace, "eth1", 200, "10.0.200.1/24")
    add_vlan(h1.namespace, "eth0", 200, "10.0.200.2/24")
    h1.namespace.run("ip", "route", "replace", "default", "via", "10.0.200.1")
    kernel = probes.kernel_forwarded(tagged.namespace)
    assert probes.ping(h1.namespace, h2.address(4), options=("-I", "10.0.200.2")).lost == 0
    assert probes.kernel_forwarded(tagged.namespace) > kernel


def test_takeover_ends_cleanly_on_this_kernel(tagged: KernelRouter) -> None:
    h1, h2 = tagged.hosts[:2]
    for process in ("switch", "controller", "supervisor"):
        tagged.up()
        assert probes.ping(h1.namespace, h2.address(4)).lost == 0
        tagged.kill(process)
        tagged.wait_for_end()
        kernel = probes.kernel_forwarded(tagged.namespace)
        assert probes.ping(h1.namespace, h2.address(4)).lost == 0
        assert probes.kernel_forwarded(tagged.namespace) > kernel
    tagged.up()
    tagged.down()
    assert "clsact" not in tagged.namespace.run("tc", "qdisc", "show").stdout
