# SPDX-License-Identifier: Apache-2.0
"""PTF's platform: ports are interfaces, read by sockets that outlive a lost link.

PTF's own port class ends the data plane's thread when its interface goes down.
"""

from typing import Any

from sluice_ptf.wire import PacketSocket


class Port:
    """The port interface that PTF's DataPlane needs."""

    def __init__(self, interface_name: str, device: int, port: int, _config: dict[str, Any]):
        self._socket = PacketSocket(interface_name)
        self._name = (device, port)

    def fileno(self) -> int:
        """Returns the descriptor to select on."""
        return self._socket.fileno()

    def get_packet_source(self) -> "Port":
        """Itself: every port has a socket of its own."""
        return self

    def recv(self) -> tuple[int, int, bytes, float] | None:
        """(device, port, frame, time), or None if there was nothing after all."""
        received = self._socket.receive_at()
        return None if received is None else (*self._name, *received)

    def send(self, frame: bytes) -> int:
        """Put one frame on the wire."""
        return self._socket.send(frame)


def platform_config_update(config: dict[str, Any]) -> None:
    """The platform that PTF needs: the interface of each port, and the class of a port."""
    config["port_map"] = {(device, port): name for device, port, name in config["interfaces"]}
    config["dataplane"] = {"portclass": Port}
