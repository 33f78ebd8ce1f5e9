"""What is wrong with files of certificates and keys, said before Flower meets them: it says so late, or not at all."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from fedwca.errors import UsageError


def check_certificate(path: Path) -> None:
    """Refuse a file that is no certificate, or one whose time is over.

    Raises:
        UsageError: says which.
    """
    from cryptography import x509

    try:
        until = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} is no certificate that can be read ({error}); fedwca deploy init makes one") from None
    if until < datetime.now(UTC):
        raise UsageError(
            f"{path} was valid until {until:%Y-%m-%d}; make a new deployment by fedwca deploy init, "
            "and hand out its ca.crt"
        )


def check_private_key(path: Path) -> None:
    """Refuse a file that is no private key of a client.

    Raises:
        UsageError: names it.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

    read = partial(serialization.load_ssh_private_key, password=None)
    _check_key(path, "private key", read, EllipticCurvePrivateKey)


def check_public_key(path: Path) -> None:
    """Refuse a file that is no public key of a client.

    Raises:
        UsageError: names it.
    """
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

    _check_key(path, "public key", serialization.load_ssh_public_key, EllipticCurvePublicKey)


def _check_key(path: Path, what: str, read: Callable[[bytes], object], kind: type) -> None:
    from cryptography.exceptions import UnsupportedAlgorithm

    right = "right is one as ssh-keygen -t ecdsa -b 384 makes it"
    try:
        found = read(path.read_bytes())
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise UsageError(f"{path} is no {what} that can be read ({error}); {right}") from None
    if not isinstance(found, kind):
        raise UsageError(f"{path} is a {what} of another kind; {right}")
