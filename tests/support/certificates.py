"""Certificates for tests, made with the `openssl` command: an authority, and what it signs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


class Authority:
    """A certificate authority in a folder. `certificate` is what those trust who trust it.

    Its certificates have what Python 3.13 asks for since then (VERIFY_X509_STRICT): key usage and key identifiers.
    """

    def __init__(self, directory: Path, *, name: str = "authority") -> None:
        openssl = shutil.which("openssl")
        if openssl is None:
            pytest.skip("no `openssl` here to make certificates with")
        self._openssl = openssl
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._key = directory / "authority.key"
        self.certificate = directory / "authority.pem"
        self._run("req", "-x509", *_NEW_KEY, "-days", "2", "-subj", f"/CN={name}",
                  "-addext", "keyUsage=critical,keyCertSign,cRLSign",
                  "-keyout", self._key, "-out", self.certificate)  # fmt: skip

    def sign(self, name: str, *, subject: str, password: str = "") -> Path:
        """A PEM file with a new private key and its certificate, good for 127.0.0.1 and localhost."""
        key, request, chain, extensions = (
            self._directory / f"{name}.{suffix}" for suffix in ("key", "csr", "pem", "ext")
        )
        hidden = ("-passout", f"pass:{password}") if password else ()
        new = [part for part in _NEW_KEY if part != "-nodes" or not password]
        self._run("req", *new, *hidden, "-subj", subject, "-keyout", key, "-out", request)
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nauthorityKeyIdentifier=keyid\n")
        self._run("x509", "-req", "-in", request, "-days", "2", "-CA", self.certificate, "-CAkey", self._key,
                  "-CAcreateserial", "-extfile", extensions, "-out", chain)  # fmt: skip
        chain.write_text(key.read_text() + chain.read_text())
        return chain

    def _run(self, *arguments: str | Path) -> None:
        subprocess.run([self._openssl, *map(str, arguments)], check=True, capture_output=True)


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
