# SPDX-License-Identifier: Apache-2.0

"""A certificate authority of the cloud's own, and haproxy's certificate."""

import pathlib
import subprocess


def make(directory: pathlib.Path, address: str) -> None:
    """Make an authority and the certificate of an address, for 30 days."""
    directory.mkdir(mode=0o755)
    ca_key, ca = directory / 'ca.key', directory / 'ca.pem'
    key, request = directory / 'server.key', directory / 'server.csr'
    _openssl('req', '-x509', '-newkey', 'ec', '-pkeyopt',
             'ec_paramgen_curve:P-256', '-nodes', '-days', '30', '-keyout',
             str(ca_key), '-out', str(ca), '-subj', '/CN=virtco lab',
             '-addext', 'keyUsage=critical,keyCertSign')
    _openssl('req', '-new', '-newkey', 'ec', '-pkeyopt',
             'ec_paramgen_curve:P-256', '-nodes', '-keyout', str(key),
             '-out', str(request), '-subj', f'/CN={address}')
    names = directory / 'names'
    names.write_text(f'subjectAltName = IP:{address}\n')
    made = directory / 'server.crt'
    _openssl('x509', '-req', '-in', str(request), '-CA', str(ca), '-CAkey',
             str(ca_key), '-CAcreateserial', '-days', '30', '-extfile',
             str(names), '-out', str(made))
    both = directory / 'server.pem'
    both.touch(mode=0o600)
    both.write_text(made.read_text() + key.read_text())


def _openssl(*arguments: str) -> None:
    subprocess.run(['openssl', *arguments], check=True, capture_output=True)
