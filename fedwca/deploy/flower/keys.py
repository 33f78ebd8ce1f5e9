"""Makes certificates for TLS and key pairs for nodes, as files."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedwca.core.files import write_secret, write_text_atomically

DAYS = 365


def _private(key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _signed(
    subject: str, key: Any, issuer: str, signer: Any, extensions: Sequence[tuple[Any, bool]]
) -> x509.Certificate:
    def x509_name(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509_name(subject))
        .issuer_name(x509_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=DAYS))
    )
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical)
    return builder.sign(signer, hashes.SHA256())


def certify(folder: Path, hosts: Sequence[str]) -> None:
    """Make a certificate authority and a server certificate: ``ca.crt``, ``server.pem``, ``server.key``.

    The authority's private key is not written, so that nothing can be signed with it later.

    Args:
        folder: the folder of the three files.
        hosts: names and addresses under which clients reach the server; localhost is always added.
    """
    authority, server = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    root = _signed(
        "fedwca authority",
        authority,
        "fedwca authority",
        authority,
        [(x509.BasicConstraints(True, 0), True), (usage, True)],
    )
    names = [_name(host) for host in dict.fromkeys(["localhost", "127.0.0.1", "::1", *hosts])]
    leaf = _signed(
        "fedwca server",
        server,
        "fedwca authority",
        authority,
        [
            (x509.BasicConstraints(False, None), True),
            (x509.SubjectAlternativeName(names), False),
            (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        ],
    )
    write_text_atomically(folder / "ca.crt", root.public_bytes(serialization.Encoding.PEM).decode())
    write_text_atomically(folder / "server.pem", leaf.public_bytes(serialization.Encoding.PEM).decode())
    write_secret(folder / "server.key", _private(server, serialization.PrivateFormat.PKCS8))


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def make_key(path: Path) -> None:
    """Make a node's key pair, ``path`` and ``path.pub``, in the format of ``ssh-keygen -t ecdsa -b 384``."""
    key = ec.generate_private_key(ec.SECP384R1())
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    write_secret(path, _private(key, serialization.PrivateFormat.OpenSSH))
    write_text_atomically(path.with_name(path.name + ".pub"), public.decode() + "\n")
