# SPDX-License-Identifier: Apache-2.0
"""Reads the configuration sections `switch`, `fpm`, `ike` and `metrics`.

These sections have the addresses of the switch, the FPM server and the metrics server, and the
local users that may connect. If a peer could not be authenticated, the configuration is refused:
P4Runtime over a network without mutual TLS, and FPM from another host. Depends on yamlreader,
config_keys and scalars.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from sluice import scalars
from sluice.config_keys import (
    ConfigSection,
    ListKey,
    defaulted,
    list_of,
    optional,
    required,
    section_of,
    shown,
)
from sluice.yamlreader import YamlMapping

BMV2 = "bmv2"
TARGETS = ("sluice-switch", BMV2)
RUN_DIRECTORY = Path("/run/sluice")
UP_DIRECTORY = Path("/run/sluice-up")
"""Directory of the files of `sluice up`, which runs as root. The user of the systemd units owns
`RUN_DIRECTORY`, and could place links there."""
P4RUNTIME_SOCKET_END = "-p4rt.sock"
LAST_PORT = 65535


@dataclass(frozen=True, slots=True)
class HostPort:
    """Holds a TCP endpoint."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        """Returns whether only processes of this host can connect.

        Among host names, only `localhost` counts as a loopback address.
        """
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """Holds the path of a Unix socket. The socket's permissions decide who may connect."""

    path: Path

    def __str__(self) -> str:
        return f"unix:{self.path}"


SwitchAddress: TypeAlias = HostPort | UnixAddress


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """Names the PEM files by which controller and switch authenticate each other.

    `ca` is the CA that signed the switch's certificate. The certificate must be for the host name
    `server_name`. If that is None, it must be for the host in the switch's address. `certificate`
    and `key` are the controller's own.
    """

    ca: Path
    certificate: Path
    key: Path
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class SwitchConfig:
    """Describes the P4Runtime target. `pipeline` holds router.json and router.p4info.txtpb."""

    address: SwitchAddress
    target: str = "sluice-switch"
    device_id: int = 1
    cpu_port: int = 510
    pipeline: Path | None = None
    tls: TlsConfig | None = None

    @property
    def transport(self) -> str:
        """Returns the name of the transport to the switch, for display."""
        if isinstance(self.address, UnixAddress):
            return "unix socket"
        return "TCP" if self.tls is None else "mutual TLS"


@dataclass(frozen=True, slots=True)
class FpmConfig:
    """Describes the FPM server that zebra's dplane_fpm_nl connects to.

    `users` are the local users (names or numbers) that may connect. When zebra has sent nothing for
    `quiet_seconds`, its replay of routes counts as complete.
    """

    listen: HostPort = HostPort("127.0.0.1", 2620)
    users: tuple[str, ...] = ("frr", "root")
    quiet_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class IkeConfig:
    """Holds the local users (names or numbers) that may send from IKE's ports.

    Other users must not, because packets from these ports bypass IPsec policy.
    """

    users: tuple[str, ...] = ("root",)


def default_address(router: str, target: str) -> SwitchAddress:
    """Returns the switch's default address: a Unix socket in the directory of the API socket.

    For BMv2, returns a TCP address, because BMv2 supports only TCP.
    """
    if target == BMV2:
        return HostPort("127.0.0.1", 9559)
    return UnixAddress(RUN_DIRECTORY / f"{router}{P4RUNTIME_SOCKET_END}")


# --- scalars -------------------------------------------------------------------------------------


@scalars.takes("name or number")
def _user(value: object) -> str:
    text = "" if isinstance(value, bool) else str(value)
    if not re.fullmatch(r"[0-9]{1,10}|[A-Za-z_][A-Za-z0-9_.-]*[$]?", text):
        raise ValueError(f"{value!r} is neither the name nor the number of a user")
    return text


@scalars.takes("`unix:PATH`, `HOST:PORT`")
def _switch_address(value: object) -> SwitchAddress:
    text = str(value)
    if not text.startswith("unix:"):
        return _host_port(value)
    return UnixAddress(scalars.socket_path(text.removeprefix("unix:")))


@scalars.takes("`HOST:PORT`")
def _fpm_listen(value: object) -> HostPort:
    if str(value).startswith("unix:"):
        raise ValueError("FRR's zebra speaks FPM over TCP only; use 127.0.0.1:2620")
    listen = _host_port(value)
    if not listen.is_loopback:
        raise ValueError(
            f"{listen} is not a loopback address: FPM has no authentication, and the controller can"
            " check the user only for processes on this host; use 127.0.0.1 or [::1]"
        )
    if listen.port < 1024:
        raise ValueError(
            f"{listen}: the controller keeps no privilege for ports below 1024; use 2620"
        )
    return listen


@scalars.takes("`unix:PATH`, `HOST:PORT`")
def _metrics_listen(value: object) -> SwitchAddress:
    listen = _switch_address(value)
    if isinstance(listen, HostPort) and not listen.is_loopback:
        raise ValueError(
            f"{listen} is not a loopback address: metrics have no authentication; use"
            " 127.0.0.1:PORT or unix:PATH, and a proxy that authenticates clients"
        )
    return listen


def _host_port(value: object) -> HostPort:
    text = str(value)
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isascii() or not port.isdigit():
        raise ValueError(f"{text!r} is not HOST:PORT (like 127.0.0.1:9559)")
    if int(port) > LAST_PORT:
        raise ValueError(f"{text!r}: there is no port {port}; the last port is {LAST_PORT}")
    return HostPort(host.strip("[]"), int(port))


# --- the schema ----------------------------------------------------------------------------------


class TlsKeys(ConfigSection, title="switch.tls"):
    """Keys of mutual TLS. Paths are relative to the configuration's directory."""

    ca = required(
        scalars.path, "Certificate (PEM) of the authority that signed the switch's certificate."
    )
    certificate = required(scalars.path, "Certificate of the controller (PEM).")
    key = required(scalars.path, "Private key of the controller (PEM).")
    server_name = optional(
        scalars.text, "Name that the switch's certificate must contain.", "the host of `address`"
    )


class SwitchKeys(ConfigSection, title="switch"):
    """Keys of the P4Runtime target."""

    target = defaulted(scalars.one_of(TARGETS), TARGETS[0], "Type of the switch.")
    address = optional(
        _switch_address,
        "Address of the switch's P4Runtime server.",
        f"{shown(default_address('ROUTER', TARGETS[0]))};"
        f" {shown(default_address('ROUTER', BMV2))} for BMv2",
    )
    device_id = defaulted(scalars.integer(1, 2**64 - 1), 1, "P4Runtime device ID of the switch.")
    cpu_port = defaulted(
        scalars.integer(1, 510), 510, "CPU port of the switch, as in its option `--cpu-port`."
    )
    pipeline = optional(
        scalars.path,
        "Directory that contains `router.json` and `router.p4info.txtpb`.",
        "the installed pipeline",
    )
    tls = section_of(
        TlsKeys,
        "Keys and certificates. Required unless the address is a Unix socket or on loopback.",
        "none",
    )


_FPM = FpmConfig()


class FpmKeys(ConfigSection, title="fpm"):
    """Keys of the FPM server that zebra connects to."""

    listen = defaulted(
        _fpm_listen,
        _FPM.listen,
        "Address that zebra's `dplane_fpm_nl` connects to. A loopback address and a port from"
        " 1024 are required.",
    )
    users = list_of(_user, "names, numbers", "Users whose processes may connect.", _FPM.users)
    quiet_seconds = defaulted(
        scalars.number(0.1, 3600, "seconds"),
        _FPM.quiet_seconds,
        "Time without an FPM message after which zebra's replay of its routes counts as"
        " complete. Routes that zebra did not replay but the kernel still holds stay in the"
        " switch.",
    )


class IkeKeys(ConfigSection, title="ike"):
    """Keys that name the users that may send IKE packets."""

    users = list_of(
        _user,
        "names, numbers",
        "Users whose processes may send from UDP ports 500 and 4500. IPsec policy does not apply"
        " to these packets ([security.md](../security.md)).",
        IkeConfig().users,
    )


class MetricsKeys(ConfigSection, title="metrics"):
    """Keys of the metrics server for Prometheus."""

    listen = optional(
        _metrics_listen,
        "Address that answers `GET /metrics`: a Unix socket, or TCP on loopback.",
        "none: metrics are not served",
    )


# --- readers -------------------------------------------------------------------------------------


def read_switch(section: YamlMapping, router: str, directory: Path) -> SwitchConfig:
    """Reads the section `switch`. Its files are relative to `directory`."""
    target = section.defaulted(SwitchKeys.target)
    switch = SwitchConfig(
        address=section.optional(SwitchKeys.address, default_address(router, target)),
        target=target,
        device_id=section.defaulted(SwitchKeys.device_id),
        cpu_port=section.defaulted(SwitchKeys.cpu_port),
        pipeline=section.optional(SwitchKeys.pipeline, None),
        tls=_read_tls(section, directory),
    )
    _check_transport(section, switch)
    section.close()
    return switch


def _read_tls(section: YamlMapping, directory: Path) -> TlsConfig | None:
    if section.value(SwitchKeys.tls) is None:
        return None
    tls = section.section(SwitchKeys.tls)
    ca = tls.required(TlsKeys.ca)
    certificate = tls.required(TlsKeys.certificate)
    key = tls.required(TlsKeys.key)
    server_name = tls.optional(TlsKeys.server_name, None)
    tls.close()
    if ca is None or certificate is None or key is None:
        return None
    return TlsConfig(directory / ca, directory / certificate, directory / key, server_name)


def _check_transport(section: YamlMapping, switch: SwitchConfig) -> None:
    wants_tls = section.value(SwitchKeys.tls) is not None
    if isinstance(switch.address, UnixAddress):
        if wants_tls:
            section.problem(
                SwitchKeys.tls, "a Unix socket has permissions and needs no TLS; remove `tls`"
            )
    elif not wants_tls and not switch.address.is_loopback:
        section.problem(
            SwitchKeys.address,
            f"{switch.address} is not a loopback address: any client that reaches it could write to"
            " the switch; give `tls:` with ca, certificate and key, or use unix:PATH",
        )


def read_fpm(section: YamlMapping) -> FpmConfig:
    """Reads the section `fpm`."""
    fpm = FpmConfig(
        listen=section.defaulted(FpmKeys.listen),
        users=_read_users(
            section, FpmKeys.users, "nobody could connect; name zebra's user, like [frr, root]"
        )
        or FpmConfig().users,
        quiet_seconds=section.defaulted(FpmKeys.quiet_seconds),
    )
    section.close()
    return fpm


def read_metrics(section: YamlMapping) -> SwitchAddress | None:
    """Returns the address of the metrics server, or None if the section is missing."""
    listen = section.optional(MetricsKeys.listen, None)
    section.close()
    return listen


def read_ike(section: YamlMapping) -> IkeConfig:
    """Reads the section `ike`."""
    users = _read_users(section, IkeKeys.users, "nobody could run IKE; name its user, like [root]")
    section.close()
    return IkeConfig(users) if users else IkeConfig()


def _read_users(section: YamlMapping, key: ListKey[str], if_empty: str) -> tuple[str, ...]:
    if section.value(key) is not None and not section.sequence(key):
        section.problem(key, if_empty)
    return section.converted(key)
