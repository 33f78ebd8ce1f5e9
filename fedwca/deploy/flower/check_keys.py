"""Checks of certificate and key files before Flower reads them, since it reports errors in them late or never."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_address
from pathlib import Path

from fedwca.errors import UsageError
from fedwca.warn_caller import warn_caller

SOON = timedelta(days=30)
"""How long before it expires a certificate is warned of."""
RENEWAL = (
    "another fedwca deploy init with the same --host makes new ones: copy its server/certs into this deployment's, and "
    "its ca.crt to each client"
)


def check_certificate(path: Path) -> None:
    """Refuse a file that is not a certificate, or one that has expired; warn if it expires within `SOON`.

    Raises:
        UsageError: the file cannot be read, is not a certificate, or has expired.
    """
    from cryptography import x509

    try:
        expiry = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is no certificate that can be read ({error}); fedwca deploy init makes one") from None
    if expiry < datetime.now(UTC):
        raise UsageError(f"{path} was valid until {expiry:%Y-%m-%d}; {RENEWAL}")
    if expiry < datetime.now(UTC) + SOON:
        warn_caller(f"{path} is valid only until {expiry:%Y-%m-%d}; {RENEWAL}")


def check_certificate_key(path: Path, certificate: Path) -> None:
    """Refuse a file that is not the private key of the server's certificate.

    Args:
        path: of the key.
        certificate: path of the certificate, which `check_certificate` has accepted.

    Raises:
        UsageError: the file cannot be read, is no private key, or is of another certificate.
    """
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization

    hint = "it is written beside the certificate by fedwca deploy init"
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path} is no private key that can be read ({error}); {hint}") from None
    if key.public_key() != x509.load_pem_x509_certificate(certificate.read_bytes()).public_key():
        raise UsageError(f"{path} is the private key of another certificate than {certificate.name}; {hint}")


def check_certified_address(path: Path, host: str) -> None:
    """Refuse an address that the server's certificate does not name, at which nobody would trust it.

    Args:
        path: of the certificate.
        host: an address; a name is not looked at, since certificates may name several at once.

    Raises:
        UsageError: the certificate has other addresses; names them.
    """
    from cryptography import x509

    try:
        address = ip_address(host)
        names = x509.load_pem_x509_certificate(path.read_bytes()).extensions.get_extension_for_class(
            x509.SubjectAlternativeName
        )
    except (ValueError, x509.ExtensionNotFound):
        return
    addresses = names.value.get_values_for_type(x509.IPAddress)
    if address not in addresses:
        raise UsageError(
            f"--host {host}: {path} is for {', '.join(map(str, addresses))}, so nobody would trust a server there; "
            "make the deployment with deploy init --host of this address too, or listen on 0.0.0.0"
        )


def check_private_key(path: Path) -> None:
    """Refuse a file that is not a client's private key.

    Raises:
        UsageError: the file cannot be read, or is not a private key of the right kind; names it.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    load = partial(serialization.load_ssh_private_key, password=None)
    _check_key(path, "private key", load, EllipticCurvePrivateKey)


def check_public_key(path: Path) -> None:
    """Refuse a file that is not a client's public key.

    Raises:
        UsageError: the file cannot be read, or is not a public key of the right kind; names it.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    _check_key(path, "public key", serialization.load_ssh_public_key, EllipticCurvePublicKey)


def _check_key(path: Path, description: str, load: Callable[[bytes], object], key_type: type) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm

    hint = "right is one as ssh-keygen -t ecdsa -b 384 makes it"
    try:
        key = load(path.read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path} is no {description} that can be read ({error}); {hint}") from None
    if not isinstance(key, key_type):
        raise UsageError(f"{path} is a {description} of another kind; {hint}")
