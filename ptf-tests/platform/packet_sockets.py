# SPDX-License-Identifier: Apache-2.0
"""Implements the PTF platform of this suite. A port is a network interface with a packet socket.

PTF's own port class ends the data plane's thread when its interface goes down. The sockets of this
platform survive a lost link.
"""

from typing import Any

from sluice_ptf.wire import PacketSocket


class Port:
    """Implements the port interface that PTF's DataPlane needs."""

    def __init__(self, interface_name: str, device: int, port: int, _config: dict[str, Any]):
        self._socket = PacketSocket(interface_name)
        self._name = (device, port)

    def fileno(self) -> int:
        """Returns the descriptor that select(2) waits for."""
        return self._socket.fileno()

    def get_packet_source(self) -> "Port":
        """Returns this port, since every port has its own socket."""
        return self

    def recv(self) -> tuple[int, int, bytes, float] | None:
        """Returns (device, port, frame, time), or None if no frame was there."""
        received = self._socket.receive_at()
        return None if received is None else (*self._name, *received)

    def send(self, frame: bytes) -> int:
        """Sends one frame."""
        return self._socket.send(frame)


def platform_config_update(config: dict[str, Any]) -> None:
    """Sets the interface of each port and the class of ports in PTF's configuration."""
    config["port_map"] = {(device, port): name for device, port, name in config["interfaces"]}
    config["dataplane"] = {"portclass": Port}
