# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made with openssl."""

import pathlib
import ssl
import subprocess
import tempfile


def _openssl(*arguments):
    subprocess.run(["openssl", *map(str, arguments)], check=True, timeout=60,
                   stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                   stderr=subprocess.PIPE)


class Identity:
    """One certificate's files."""

    def __init__(self, cert, key, ca):
        self.cert, self.key, self.ca = cert, key, ca

    def flags(self):
        return ["--tls_cert", self.cert, "--tls_key", self.key,
                "--tls_ca", self.ca]


class Authority:
    """A root in a folder of its own."""

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="specwire-tls-")
        self.folder = pathlib.Path(self._folder.name)
        self.ca = self.folder / "ca.pem"
        self._key = self.folder / "ca.key"
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt",
                 "ec_paramgen_curve:P-256", "-nodes", "-days", 2, "-subj",
                 "/CN=test", "-keyout", self._key, "-out", self.ca)

    def close(self):
        self._folder.cleanup()

    def issue(self, file, *names, days=1):
        """A certificate with these DNS names; days below 0: it has expired."""
        request, cert, key, extensions = (
            self.folder / f"{file}.{end}" for end in ("csr", "pem", "key", "ext"))
        _openssl("req", "-new", "-newkey", "ec", "-pkeyopt",
                 "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={file}",
                 "-keyout", key, "-out", request)
        extensions.write_text("subjectAltName=" + ",".join(
            f"DNS:{name}" for name in names) + "\n" if names else "\n")
        # A term that ends before it begins is refused as one that has ended.
        _openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey",
                 self._key, "-CAcreateserial", "-days", days, "-extfile",
                 extensions, "-out", cert)
        return Identity(cert, key, self.ca)


def client_context(ca, identity=None):
    """How a program that is not ours connects; it checks no host name."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(ca)
    context.set_alpn_protocols(["h2"])
    if identity is not None:
        context.load_cert_chain(identity.cert, identity.key)
    return context
