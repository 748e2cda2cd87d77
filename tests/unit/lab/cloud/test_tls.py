# SPDX-License-Identifier: Apache-2.0

import ssl
import stat
import subprocess

import pytest

from virtco_lab.cloud import tls


def test_haproxys_certificate_is_of_the_cloud_and_for_its_address(tmp_path):
    directory = tmp_path / 'tls'
    tls.make(directory, '172.30.0.1')
    assert stat.S_IMODE(directory.stat().st_mode) == 0o755
    made, ca = directory / 'server.pem', directory / 'ca.pem'
    # It holds the key, too, which nobody else reads.
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(made)
    text = made.read_text()
    assert text.count('BEGIN CERTIFICATE') == text.count('PRIVATE KEY') / 2
    for address, is_fine in (('172.30.0.1', True), ('172.30.0.2', False)):
        done = subprocess.run(
            ['openssl', 'verify', '-CAfile', ca, '-verify_ip', address,
             made], capture_output=True)
        assert (done.returncode == 0) is is_fine


def test_what_openssl_says_of_its_end_is_kept():
    with pytest.raises(subprocess.CalledProcessError) as caught:
        tls._openssl('nothing')
    assert b'nothing' in caught.value.stderr
