# SPDX-License-Identifier: Apache-2.0

"""Haproxy's certificate, which is its own authority."""

import pathlib
import subprocess


def make(directory: pathlib.Path, address: str) -> None:
    """Make the certificate of an address, for 30 days."""
    directory.mkdir(mode=0o755)
    key, made = directory / 'server.key', directory / 'ca.pem'
    _openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt',
             'ec_paramgen_curve:P-256', '-nodes', '-days', '30', '-keyout',
             str(key), '-out', str(made), '-subj', f'/CN={address}',
             '-addext', 'keyUsage=critical,keyCertSign,digitalSignature',
             '-addext', f'subjectAltName=IP:{address}')
    both = directory / 'server.pem'
    both.touch(mode=0o600)
    both.write_text(made.read_text() + key.read_text())


def _openssl(*arguments: str) -> None:
    subprocess.run(['openssl', *arguments], check=True, capture_output=True)
