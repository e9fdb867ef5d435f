# SPDX-License-Identifier: Apache-2.0
"""Runs the programs of a node: the stack of a host, FRR with kernel forwarding, or FRR with a P4
switch.

All classes work on a `Namespace` whose links exist. So they work with mininet and with the test
kit.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sluice_testkit.controller import Controller
from sluice_testkit.frr import Frr
from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import Process, Supervisor
from sluice_testkit.target import Target, p4runtime_address
from sluice_topo.description import Host, Router

LINUX = "linux"  # in place of a target's name: the kernel forwards in every router


class HostNode:
    """Configures a host, whose namespace and link exist."""

    def __init__(self, description: Host, namespace: Namespace):
        self.description = description
        self.name = description.name
        self.namespace = namespace

    def start(self) -> None:
        """Sets the host's addresses and default routes."""
        self.namespace.add_address("eth0", *self.description.addresses)
        for gateway in self.description.gateways:
            family = "-6" if ":" in gateway else "-4"
            self.namespace.run("ip", family, "route", "add", "default", "via", gateway)

    def address(self, version: int) -> str:
        """Returns the host's IPv4 or IPv6 address."""
        return self.description.address(version)


class LinuxRouter:
    """Runs a router whose kernel forwards.

    `addresses` maps interfaces to their addresses, if FRR's configuration does not set them.
    """

    def __init__(
        self,
        description: Router,
        namespace: Namespace,
        directory: Path,
        supervisor: Supervisor,
        *,
        addresses: Mapping[str, list[str]] | None = None,
        frr_config: str | None = None,
    ):
        self.name = description.name
        self.namespace = namespace
        self._addresses = addresses or {}
        frr_config = frr_config or description.frr_config()
        self.frr = Frr(self.name, namespace, frr_config, directory, supervisor)

    def start(self) -> None:
        """Enables forwarding in the kernel, with ECMP hashing that includes ports. Then
        starts FRR.
        """
        self.namespace.sysctl(
            ipv4__ip_forward=1,
            ipv6__conf__all__forwarding=1,
            ipv4__fib_multipath_hash_policy=1,
            ipv6__fib_multipath_hash_policy=1,
            ipv6__conf__all__keep_addr_on_down=1,
        )
        for interface, addresses in self._addresses.items():
            self.namespace.add_address(interface, *addresses)
        self.frr.start()

    def check(self) -> None:
        """Raises `ProcessDied` with the end of the log if one of the router's programs has
        ended.
        """
        check_all(self.frr.processes.values())

    def stop(self) -> None:
        """Stops FRR."""
        self.frr.stop()


class P4Router:
    """Runs a router whose P4 switch forwards: switch, controller and FRR. The kernel never
    forwards.

    `switch_address` is the address at which the switch serves P4Runtime, if the controller does not
    connect to the switch directly. By default, the switch uses the address in the configuration. A
    Unix socket is always created in the run directory.
    """

    def __init__(
        self,
        description: Router,
        namespace: Namespace,
        directory: Path,
        supervisor: Supervisor,
        *,
        target: str | None = None,
        config: dict[str, Any] | None = None,
        frr_config: str | None = None,
        switch_address: str | None = None,
        frr_options: Mapping[str, Sequence[str]] | None = None,
    ):
        self.name = description.name
        self.namespace = namespace
        self.files = description.files
        config = config or description.sluice_config()
        configured = config["switch"].get("address", "unix:")
        if configured.startswith("unix:"):
            configured = p4runtime_address(target, directory, self.name)
        config = config | {"switch": config["switch"] | {"address": configured}}
        ports = {i["port"]: i["device"] for i in config["interfaces"]}
        self.target = Target(
            namespace,
            ports,
            supervisor,
            name=target,
            label=f"{self.name}-switch",
            device_id=config["switch"]["device_id"],
            address=switch_address or configured,
        )
        self.controller = Controller(
            self.name, namespace, config, directory, supervisor, target=self.target.name
        )
        frr_config = frr_config or description.frr_config()
        self.frr = Frr(
            *(self.name, namespace, frr_config, directory, supervisor),
            fpm=True,
            options=frr_options,
        )

    def start(self) -> None:
        """Starts the switch, then the controller, then FRR, which uses the interfaces that the
        controller has created.
        """
        self.namespace.sysctl(ipv4__ip_forward=0, ipv6__conf__all__forwarding=0)
        self.target.start()
        self.controller.start()
        self.frr.start()

    def check(self) -> None:
        """Raises `ProcessDied` with the end of the log if one of the router's programs has
        ended.
        """
        check_all((self.target.process, self.controller.process, *self.frr.processes.values()))

    def stop(self) -> None:
        """Stops FRR, the controller and the switch."""
        self.frr.stop()
        self.controller.stop()
        self.target.stop()


RouterNode = LinuxRouter | P4Router


def check_all(processes: Iterable[Process | None]) -> None:
    """Checks that all processes are running. An entry is None if its process was never started."""
    for process in processes:
        if process is not None:
            process.check()


def plain_linux(
    description: Router,
    namespace: Namespace,
    directory: Path,
    supervisor: Supervisor,
    frr_config: str | None = None,
) -> LinuxRouter:
    """Returns a Linux router that uses the files of a P4 router. It serves as a control experiment.

    Its links must end at interfaces with the names in sluice.yaml, and not at switch ports.
    """
    interfaces = description.sluice_config()["interfaces"]
    addresses = {interface["name"]: interface["addresses"] for interface in interfaces}
    lines = (frr_config or description.frr_config()).splitlines(keepends=True)
    frr_config = "".join(line for line in lines if not line.startswith(("fpm ", "no fpm ")))
    return LinuxRouter(
        *(description, namespace, directory, supervisor),
        addresses=addresses,
        frr_config=frr_config,
    )
