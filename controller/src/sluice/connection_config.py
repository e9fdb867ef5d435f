# SPDX-License-Identifier: Apache-2.0
"""Configuration sections `switch`, `fpm`, `ike` and `metrics`: where the switch is, where metrics
are served, and which peers and local users may connect.

Peers that cannot be checked are refused here: P4Runtime over a network without mutual TLS, FPM
from another host. Depends on yamlreader and scalars.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sluice import scalars
from sluice.yamlreader import Mapping

BMV2 = "bmv2"
TARGETS = ("sluice-switch", BMV2)
RUN_DIRECTORY = Path("/run/sluice")
P4RUNTIME_SOCKET_END = "-p4rt.sock"
MAXIMUM_SOCKET_PATH = 107  # sun_path of unix(7), less its end


LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class HostPort:
    """A TCP end point."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Whether only processes of this host can be at the other end; of names, localhost."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """A Unix socket; its permissions say who may connect."""

    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


SwitchAddress: TypeAlias = HostPort | UnixAddress


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Files (PEM) by which controller and switch know each other.

    `ca` signed the switch's certificate, which must be for `server_name` (None: for the address's
    host); `certificate` and `key` are the controller's.
    """

    ca: Path
    certificate: Path
    key: Path
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class SwitchConfig:
    """The P4Runtime target. `pipeline` holds router.json and router.p4info.txtpb."""

    address: SwitchAddress
    target: str = "sluice-switch"
    device_id: int = 1
    cpu_port: int = 510
    pipeline: Path | None = None
    tls: TlsConfig | None = None

    @property
    def transport(self) -> str:
        """How the switch is reached, for people."""
        if isinstance(self.address, UnixAddress):
            return "unix socket"
        return "TCP" if self.tls is None else "mutual TLS"


@dataclass(frozen=True, slots=True)
class FpmConfig:
    """Where zebra's dplane_fpm_nl connects to, as which user (names or numbers), and when its
    replay counts as finished."""

    listen: HostPort = HostPort("127.0.0.1", 2620)
    users: tuple[str, ...] = ("frr", "root")
    quiet_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class IkeConfig:
    """Which local users (names or numbers) may send from IKE's ports, which policy bypasses."""

    users: tuple[str, ...] = ("root",)


def default_address(router: str, target: str) -> SwitchAddress:
    """A Unix socket beside the API's; BMv2 knows TCP only."""
    if target == BMV2:
        return HostPort("127.0.0.1", 9559)
    return UnixAddress(RUN_DIRECTORY / f"{router}{P4RUNTIME_SOCKET_END}")


def read_switch(section: Mapping, router: str, directory: Path) -> SwitchConfig:
    """The section `switch`; its files are relative to `directory`."""
    target = section.optional("target", scalars.one_of(TARGETS), TARGETS[0])
    address = section.optional("address", _switch_address, default_address(router, target))
    switch = SwitchConfig(
        address=address,
        target=target,
        device_id=section.optional("device_id", scalars.integer(1, 2**64 - 1), 1),
        cpu_port=section.optional("cpu_port", scalars.integer(1, 510), 510),
        pipeline=section.optional("pipeline", _path, None),
        tls=_read_tls(section, directory),
    )
    _check_transport(section, switch)
    section.close()
    return switch


def _read_tls(section: Mapping, directory: Path) -> TlsConfig | None:
    if section.value("tls") is None:
        return None
    tls = section.section("tls")
    ca = tls.required("ca", _path, "the file with the certificate that signed the switch's")
    certificate = tls.required("certificate", _path, "the file with the controller's certificate")
    key = tls.required("key", _path, "the file with the controller's private key")
    server_name = tls.optional("server_name", scalars.text, None)
    tls.close()
    if ca is None or certificate is None or key is None:
        return None
    return TlsConfig(directory / ca, directory / certificate, directory / key, server_name)


def _check_transport(section: Mapping, switch: SwitchConfig) -> None:
    wants_tls = section.value("tls") is not None
    if isinstance(switch.address, UnixAddress):
        if wants_tls:
            section.problem("tls", "a Unix socket has permissions and needs no TLS; remove this")
    elif not wants_tls and not switch.address.is_loopback:
        section.problem(
            "address",
            f"{switch.address} is not a loopback address: whoever reaches it could write to the"
            " switch; give `tls:` with ca, certificate and key, or use unix:PATH",
        )


def read_fpm(section: Mapping) -> FpmConfig:
    """The section `fpm`."""
    default = FpmConfig()
    fpm = FpmConfig(
        listen=section.optional("listen", _fpm_listen, default.listen),
        users=_read_users(section, "nobody could connect; name zebra's user, like [frr, root]")
        or default.users,
        quiet_seconds=section.optional(
            "quiet_seconds", scalars.number(0.1, 3600), default.quiet_seconds
        ),
    )
    section.close()
    return fpm


def read_metrics(section: Mapping) -> SwitchAddress | None:
    """The section `metrics`: where they are served; None: nowhere."""
    listen = section.optional("listen", _metrics_listen, None)
    section.close()
    return listen


def read_ike(section: Mapping) -> IkeConfig:
    """The section `ike`."""
    users = _read_users(section, "nobody could run IKE; name its user, like [root]")
    section.close()
    return IkeConfig(users) if users else IkeConfig()


def _read_users(section: Mapping, if_empty: str) -> tuple[str, ...]:
    values = section.sequence("users")
    if section.value("users") is not None and not values:
        section.problem("users", if_empty)
    users = (value.convert(_user) for value in values)
    return tuple(user for user in users if user is not None)


# --- scalars: each converter takes the YAML scalar and returns a value or raises ValueError ------


def _path(value: object) -> Path:
    return Path(scalars.text(value))


def _user(value: object) -> str:
    text = "" if isinstance(value, bool) else str(value)
    if not re.fullmatch(r"[0-9]{1,10}|[A-Za-z_][A-Za-z0-9_.-]*[$]?", text):
        raise ValueError(f"{value!r} is neither a user's name nor a number")
    return text


def _switch_address(value: object) -> SwitchAddress:
    text = str(value)
    if not text.startswith("unix:"):
        return _host_port(value)
    path = text.removeprefix("unix:")
    if not path.startswith("/") or len(path.encode()) > MAXIMUM_SOCKET_PATH:
        raise ValueError(
            f"{text!r}: a socket's path begins with / and has at most {MAXIMUM_SOCKET_PATH} bytes"
        )
    return UnixAddress(Path(path))


def _fpm_listen(value: object) -> HostPort:
    if str(value).startswith("unix:"):
        raise ValueError("FRR's zebra speaks FPM over TCP only; use 127.0.0.1:2620")
    listen = _host_port(value)
    if not listen.is_loopback:
        raise ValueError(
            f"{listen} is not a loopback address: FPM has no authentication, and only of a process"
            " on this host the user can be checked; use 127.0.0.1 or [::1]"
        )
    if listen.port < 1024:
        raise ValueError(
            f"{listen}: the controller keeps no privilege for ports below 1024; use 2620"
        )
    return listen


def _metrics_listen(value: object) -> SwitchAddress:
    listen = _switch_address(value)
    if isinstance(listen, HostPort) and not listen.is_loopback:
        raise ValueError(
            f"{listen} is not a loopback address: metrics have no authentication; use"
            " 127.0.0.1:PORT or unix:PATH, and a proxy that has some"
        )
    return listen


def _host_port(value: object) -> HostPort:
    text = str(value)
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"{text!r} is not HOST:PORT (like 127.0.0.1:9559)")
    if int(port) > LAST_PORT:
        raise ValueError(f"{text!r}: there is no port {port}, the last is {LAST_PORT}")
    return HostPort(host.strip("[]"), int(port))
