# SPDX-License-Identifier: Apache-2.0
"""Creates certificate authorities and certificates for tests of TLS, with the `openssl` command."""

from __future__ import annotations

import subprocess
from pathlib import Path

_DAYS = "2"
_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


class Authority:
    """Signs certificates. Keeps its files in its own directory."""

    def __init__(self, directory: Path, name: str) -> None:
        directory.mkdir()
        self._directory, self._name = directory, name
        self._openssl(
            "req", "-x509", *_KEY, "-days", _DAYS, "-subj", f"/CN={name}",
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign",
            "-keyout", "ca.key", "-out", "ca.pem",
        )  # fmt: skip
        self.certificate = (directory / "ca.pem").read_bytes()

    def issue(self, name: str, *alternatives: str) -> tuple[bytes, bytes]:
        """Returns certificate and key of `name`, for alternatives like "IP:127.0.0.1"."""
        extensions = f"subjectAltName={','.join(alternatives) or f'DNS:{name}'}\n"
        (self._directory / "extensions").write_text(extensions)
        self._openssl(
            "req", *_KEY, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"
        )
        self._openssl(
            "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-days", _DAYS, "-extfile", "extensions", "-out", f"{name}.pem",
        )  # fmt: skip
        certificate, key = (self._directory / f"{name}.{end}" for end in ("pem", "key"))
        return certificate.read_bytes(), key.read_bytes()

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(
            ["openssl", *arguments], cwd=self._directory, check=True, capture_output=True
        )
