# SPDX-License-Identifier: Apache-2.0
"""Tests the network namespaces of VRFs. The controller finds or creates them, and removes only
those that it has created.

The tests use the real kernel, and a directory of their own for the namespaces' names. They need
root.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from sluice import privileges
from sluice.config import Config, Isolation, VrfConfig, load_config
from sluice.sources.namespace import NetworkNamespace
from sluice.sources.vrf_namespaces import FILE_NAME, VrfNamespaces

CONFIG = """
router: r1
switch: {address: "unix:/run/p4rt.sock", device_id: 1}
vrfs: {red: {table: 100}, blue: {table: 200}}
interfaces:
  - {name: eth1, port: 1, mac: "02:00:00:00:01:01", addresses: [10.0.1.1/24], vrf: red, spd: none}
"""
_libc = ctypes.CDLL(None)


class Host:
    """Simulates one host over several starts of a controller."""

    def __init__(self, directory: Path) -> None:
        self.names, self.state = directory / "netns", directory / "state"
        self.state.mkdir()
        path = directory / "r1.yaml"
        path.write_text(CONFIG)
        self.config = load_config(path)

    def starts(self, *vrfs: str, devices: bool = False, **keys: Isolation | str) -> VrfNamespaces:
        """Starts a controller with these VRFs. `keys` are settings of the VRF red."""
        places = VrfNamespaces(self.state, self.names)
        self.decided = places.decide(self.having(*vrfs, **keys), lambda _: devices)
        return places

    def having(self, *vrfs: str, **keys: Isolation | str) -> Config:
        kept = [one for one in self.config.vrfs if one.name in ("default", *vrfs)]
        changed = tuple(replace(one, **keys) if one.name == "red" else one for one in kept)  # type: ignore[arg-type]
        return replace(self.config, vrfs=changed, interfaces=self.config.interfaces)

    def vrf(self, name: str) -> VrfConfig:
        return next(vrf for vrf in self.decided.vrfs if vrf.name == name)

    def has(self, name: str) -> bool:
        return (self.names / name).exists()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    for name in host.names.iterdir() if host.names.exists() else ():
        _libc.umount2(str(name).encode(), 2)
    _libc.umount2(str(host.names).encode(), 2)


def interfaces_inside(namespace: NetworkNamespace) -> set[str]:
    return {name for _, name in namespace.call(socket.if_nameindex)}


def test_without_vrf_devices_each_vrf_gets_a_namespace_of_its_own(host: Host) -> None:
    places = host.starts("red", "blue")
    assert host.vrf("red").isolation is host.vrf("blue").isolation is Isolation.NAMESPACE
    (interface,) = host.decided.interfaces
    assert interface.spec.namespace == host.vrf("red").id == 1
    red, blue = places.namespaces[1], places.namespaces[2]
    red.call(subprocess.run, ["ip", "tuntap", "add", "eth1", "mode", "tap"], check=True)
    assert "eth1" in interfaces_inside(red)
    assert "eth1" not in interfaces_inside(blue)
    assert "eth1" not in {name for _, name in socket.if_nameindex()}
    for namespace in (red, blue):  # the FPM listener and its peer use the loopback interface
        server = namespace.call(socket.create_server, ("127.0.0.1", 2620))
        namespace.call(socket.create_connection, ("127.0.0.1", 2620), 5).close()
        server.close()
    places.close()


def test_with_vrf_devices_there_is_none_but_where_the_configuration_says_so(host: Host) -> None:
    host.starts("red", "blue", devices=True).close()
    assert host.vrf("red").isolation is Isolation.DEVICE
    assert host.decided.interfaces[0].spec.namespace == 0
    assert not host.names.exists()
    host.starts("red", "blue", devices=True, isolation=Isolation.NAMESPACE).close()
    assert host.vrf("red").isolation is Isolation.NAMESPACE
    assert host.vrf("blue").isolation is Isolation.DEVICE
    assert host.has("red")
    assert not host.has("blue")


def test_what_the_configuration_says_is_done_or_the_start_fails(host: Host) -> None:
    with pytest.raises(OSError, match="VRF red: this kernel has no VRF devices"):
        host.starts("red", isolation=Isolation.DEVICE)
    host.starts("red", isolation=Isolation.SHARED).close()
    assert host.vrf("red").namespace_number == 0
    assert not host.has("red")


def test_without_the_capability_vrfs_share_the_host_stack(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(privileges, "has", lambda _: False)
    host.starts("red").close()
    assert host.vrf("red").isolation is Isolation.SHARED
    assert "VRFs red share the host's stack" in caplog.text


def test_a_namespace_stays_over_a_restart_and_goes_with_its_vrf(host: Host) -> None:
    places = host.starts("red", "blue")
    cookies = [places.namespaces[n].cookie for n in (1, 2)]
    places.close()
    places = host.starts("red", "blue")
    assert [places.namespaces[n].cookie for n in (1, 2)] == cookies
    assert not places.namespaces[1].made
    places.close()
    host.starts("blue").close()
    assert not host.has("red")
    assert host.has("blue")
    assert list(json.loads((host.state / FILE_NAME).read_text())) == ["blue"]


def test_a_namespace_that_was_found_is_never_removed(host: Host) -> None:
    NetworkNamespace("red", host.names).close()
    host.starts("red").close()
    host.starts("blue").close()
    assert host.has("red")


def test_a_namespace_that_somebody_made_in_its_place_is_not_removed(host: Host) -> None:
    host.starts("red").close()
    ours = NetworkNamespace("red", host.names)
    ours.remove()
    ours.close()
    NetworkNamespace("red", host.names).close()
    host.starts("blue").close()
    assert host.has("red")


def test_a_name_that_is_no_namespace_is_an_error(host: Host) -> None:
    host.names.mkdir()
    (host.names / "red").touch()
    with pytest.raises(OSError, match="network namespace red: "):
        host.starts("red")


def test_the_controllers_own_namespace_is_no_vrfs(host: Host) -> None:
    host.starts("blue").close()
    home = str(host.names / "home").encode()
    (host.names / "home").touch()
    assert _libc.mount(b"/proc/self/ns/net", home, b"none", 0x1000, None) == 0
    with pytest.raises(OSError, match="the one that the controller runs in"):
        host.starts("red", namespace="home")


PROGRAM = """
import json, os, sys
from pathlib import Path
from sluice import privileges
from sluice.sources.namespace import NetworkNamespace, _call, CLONE_NEWNET

namespace = NetworkNamespace("red", Path(sys.argv[1]))
try:
    privileges.drop()
except privileges.PrivilegeError as error:
    refused = str(error)
namespace.give_up_privileges()
privileges.drop()
def capabilities():
    lines = Path("/proc/thread-self/status").read_text().splitlines()
    return [line.split()[1] for line in lines if line.startswith(("CapPrm", "CapEff", "CapBnd"))]
def enter():
    try:
        _call("unshare", CLONE_NEWNET)
    except PermissionError:
        return "refused"
os.close(namespace.call(os.open, "/dev/net/tun", os.O_RDWR))
namespace.call(Path("/proc/sys/net/ipv4/conf/lo/arp_ignore").write_text, "1")
print(json.dumps([refused, capabilities(), namespace.call(capabilities), namespace.call(enter),
                  Path("/proc/sys/net/ipv4/conf/lo/arp_ignore").read_text().strip()]))
"""


def test_the_thread_in_a_namespace_keeps_no_more_than_the_process(host: Host) -> None:
    argv = [sys.executable, "-c", PROGRAM, str(host.names)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=os.environ)
    refused, ours, threads, entered, setting_at_home = json.loads(done.stdout)
    assert "runs with privileges" in refused
    assert ours == threads == [f"{1 << privileges.CAP_NET_ADMIN:016x}"] * 3
    assert entered == "refused"
    assert setting_at_home == "0"
