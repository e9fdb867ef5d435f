# SPDX-License-Identifier: Apache-2.0
"""A strongSwan of its own for a namespace: charon, and swanctl to ask it.

Two charons of one machine would share /run, so that each has its own. Depends on namespaces,
process and wait.
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
"""Plugins for SAs in user space: charon makes the ESP itself, in UDP, of what enters `TUN`."""
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
    """Whether Debian's packages strongswan-charon and strongswan-swanctl are there."""
    return CHARON.exists() and SWANCTL.exists()


def kernel_has_esp(namespace: Namespace) -> bool:
    """Whether the kernel takes an ESP state, for which it may load a module. Leaves none."""
    ends = ("src", "192.0.2.1", "dst", "192.0.2.2", "proto", "esp", "spi", "0x1000")
    aead = ("aead", "rfc4106(gcm(aes))", f"0x{'11' * 20}", "128")
    made = namespace.run("ip", "xfrm", "state", "add", *ends, "mode", "tunnel", *aead, check=False)
    if made.returncode == 0:
        namespace.run("ip", "xfrm", "state", "delete", *ends)
    return made.returncode == 0


def has_userspace_esp() -> bool:
    """Whether Debian's libcharon-extra-plugins is there, too."""
    return is_installed() and LIBIPSEC.exists()


class StrongSwan:
    """One IKE daemon.

    `kernel` are the plugins that have its SAs: the kernel's, or libipsec's before it. Of
    `plugins` that offer the same algorithm, the first serves. With `keys_in_log` its log has the
    keys of its SAs, for `charon_keys`.
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
        """Start charon with connections and secrets, as swanctl.conf has them."""
        run = f"mount -t tmpfs tmpfs /run && exec env STRONGSWAN_CONF={self._settings} {CHARON}"
        argv = self._namespace.argv(["unshare", "--mount", "sh", "-c", run])
        self.process = self._supervisor.start(self._label, argv)
        wait_until(self._answers, 20, f"{self._label} to answer")
        self.load(connections)

    def load(self, connections: str) -> None:
        """Give it these connections and secrets, and no others."""
        path = self._directory / "swanctl.conf"
        path.write_text(connections, encoding="utf-8")
        self.ctl("--load-all", "--clear", "--file", str(path))

    def kill(self) -> None:
        """End it as a crash would: nothing is told to the peer."""
        assert self.process is not None
        self.process.kill()
        self.process = None

    def ctl(self, *words: str) -> str:
        """Run swanctl; return what it prints."""
        command = (f"STRONGSWAN_CONF={self._settings}", str(SWANCTL), *words, "--uri", self._uri)
        return str(self._namespace.run("env", *command).stdout)

    def established(self, child: str) -> list[str]:
        """The lines of `swanctl --list-sas` about a child SA that is installed."""
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
