# SPDX-License-Identifier: Apache-2.0
"""Checks whether the kernel has the features that tests need."""

from sluice_testkit.namespaces import Namespace


def has_vrf_devices(place: Namespace) -> bool:
    """Returns whether the kernel has VRF devices.

    Deletes the device that it creates for the test.
    """
    made = place.run("ip", "link", "add", "probe", "type", "vrf", "table", "9", check=False)
    if made.returncode == 0:
        place.run("ip", "link", "del", "probe")
    return made.returncode == 0


def has_vlan_devices(place: Namespace, card: str) -> bool:
    """Returns whether the kernel has VLAN devices, of which one can be on this card.

    Deletes the device that it creates for the test.
    """
    words = ("name", "probe", "link", card, "type", "vlan", "id", "9")
    made = place.run("ip", "link", "add", *words, check=False)
    if made.returncode == 0:
        place.run("ip", "link", "del", "probe")
    return made.returncode == 0
