# SPDX-License-Identifier: Apache-2.0
"""Runs a separate strongSwan in a namespace: charon, controlled by swanctl.

Two charons on one machine would use the same files in /run, so each gets its own /run. Depends on
namespaces, process and wait.
"""

from collections.abc import Sequence
from pathlib import Path

from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import CommandFailed, Process, Supervisor
from sluice_testkit.wait import wait_until

CHARON = Path("/usr/lib/ipsec/charon")
SWANCTL = Path("/usr/sbin/swanctl")
PLUGINS = (
    *("random", "nonce", "aes", "sha1", "sha2", "hmac", "kdf", "gcm", "curve25519", "gmp"),
    *("openssl", "pem", "pkcs1", "x509", "pubkey", "constraints"),
    *("socket-default", "vici", "updown"),
)
LIBIPSEC = Path("/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so")
USERSPACE_ESP = ("kernel-libipsec", "kernel-netlink")
"""Plugins for SAs in user space: charon itself does ESP (in UDP) for packets routed to `TUN`."""
TUN = "ipsec0"
CONFIG = """\
charon {{
  load = {plugins}
  install_routes = no
  install_virtual_ip = no
  retransmit_timeout = 2
  retransmit_tries = 3
  plugins {{ vici {{ socket = {uri} }} }}
  filelog {{ log {{ path = {log}
    flush_line = yes
    default = 1
    knl = 2
    chd = {children} }} }}
}}
"""


def is_installed() -> bool:
    """Returns whether Debian's packages strongswan-charon and strongswan-swanctl are installed."""
    return CHARON.exists() and SWANCTL.exists()


def kernel_has_esp(namespace: Namespace) -> bool:
    """Returns whether the kernel accepts an ESP SA.

    Adds an SA, which may load a kernel module, and deletes it again.
    """
    ends = ("src", "192.0.2.1", "dst", "192.0.2.2", "proto", "esp", "spi", "0x1000")
    aead = ("aead", "rfc4106(gcm(aes))", f"0x{'11' * 20}", "128")
    made = namespace.run("ip", "xfrm", "state", "add", *ends, "mode", "tunnel", *aead, check=False)
    if made.returncode == 0:
        namespace.run("ip", "xfrm", "state", "delete", *ends)
    return made.returncode == 0


def has_userspace_esp() -> bool:
    """Returns whether strongSwan and Debian's package libcharon-extra-plugins are installed."""
    return is_installed() and LIBIPSEC.exists()


class StrongSwan:
    """Runs one IKE daemon.

    `kernel` lists the plugins that install SAs: kernel-netlink alone, or kernel-libipsec before
    kernel-netlink. If several of `plugins` offer the same algorithm, the first one is used. With
    `keys_in_log`, the log contains the keys of the SAs (see `charon_keys`).
    """

    def __init__(
        self,
        label: str,
        namespace: Namespace,
        directory: Path,
        supervisor: Supervisor,
        kernel: Sequence[str] = ("kernel-netlink",),
        plugins: Sequence[str] = PLUGINS,
        *,
        keys_in_log: bool = False,
    ):
        self.process: Process | None = None
        self._label = label
        self._namespace = namespace
        self._directory = directory / label
        self._directory.mkdir()
        self._supervisor = supervisor
        self._uri = f"unix://{self._directory}/vici"
        self.log = self._directory / "charon.log"
        self._settings = self._directory / "strongswan.conf"
        self._settings.write_text(
            CONFIG.format(
                plugins=" ".join((*plugins, *kernel)),
                uri=self._uri,
                log=self.log,
                children=4 if keys_in_log else 1,
            ),
            encoding="utf-8",
        )

    def start(self, connections: str) -> None:
        """Starts charon and loads connections and secrets. `connections` has the format of
        swanctl.conf.
        """
        run = f"mount -t tmpfs tmpfs /run && exec env STRONGSWAN_CONF={self._settings} {CHARON}"
        argv = self._namespace.argv(["unshare", "--mount", "sh", "-c", run])
        self.process = self._supervisor.start(self._label, argv)
        wait_until(self._answers, 20, f"{self._label} to answer")
        self.load(connections)

    def load(self, connections: str) -> None:
        """Loads these connections and secrets into charon, in place of the earlier ones."""
        path = self._directory / "swanctl.conf"
        path.write_text(connections, encoding="utf-8")
        self.ctl("--load-all", "--clear", "--file", str(path))

    def kill(self) -> None:
        """Kills the daemon, which simulates a crash. The peer is not notified."""
        assert self.process is not None
        self.process.kill()
        self.process = None

    def ctl(self, *words: str) -> str:
        """Runs swanctl and returns its output."""
        command = (f"STRONGSWAN_CONF={self._settings}", str(SWANCTL), *words, "--uri", self._uri)
        return str(self._namespace.run("env", *command).stdout)

    def established(self, child: str) -> list[str]:
        """Returns the lines of `swanctl --list-sas` for the child SA `child`, if it is
        installed.
        """
        lines = self.ctl("--list-sas").splitlines()
        return [line for line in lines if child in line and "INSTALLED" in line]

    def _answers(self) -> bool:
        assert self.process is not None
        self.process.check()
        try:
            self.ctl("--stats")
        except CommandFailed:
            return False
        return True
