# SPDX-License-Identifier: Apache-2.0

import contextlib
import socket
import ssl
import threading
import types

import pytest

from tests import openssl
from virtco import exception
from virtco import metrics
from virtco.distribute import certificates

HOST = '127.0.0.1'


@pytest.fixture(scope='module')
def authority(tmp_path_factory):
    return openssl.Authority(tmp_path_factory.mktemp('ca'))


@pytest.fixture(scope='module')
def pairs(authority):
    """Two pairs for one name, as texts of a certificate and its key."""
    return [[path.read_text() for path in authority.sign(HOST)]
            for _ in range(2)]


class Site:
    """Files of one process, and both of its ends."""

    def __init__(self, home, authority, pair):
        self.cert, self.key = home / 'cert.pem', home / 'key.pem'
        self.write(pair)
        self.options = types.SimpleNamespace(
            cert_file=str(self.cert), key_file=str(self.key),
            client_ca_file=str(authority.path), ca_file=str(authority.path))
        self.counts = metrics.Metrics()
        self.ends = {
            'server': certificates.of(self.options, 'server', self.counts),
            'client': certificates.of(self.options, 'client', self.counts)}

    def write(self, pair):
        self.cert.write_text(pair[0])
        self.key.write_text(pair[1])

    def unusable(self):
        return {end: self.counts.registry.get_sample_value(
            'virtco_certificates_unusable', {'end': end})
            for end in self.ends}

    @contextlib.contextmanager
    def connected(self):
        """A client's and a server's socket after the handshake."""
        contexts = {end: one.context() for end, one in self.ends.items()}
        near, far = socket.socketpair()
        served = []
        thread = threading.Thread(target=lambda: served.append(
            contexts['server'].wrap_socket(far, server_side=True)))
        thread.start()
        with contexts['client'].wrap_socket(
                near, server_hostname=HOST) as client:
            thread.join()
            with served[0] as server:
                yield client, server


@pytest.fixture
def site(tmp_path, authority, pairs):
    return Site(tmp_path, authority, pairs[0])


def shown(sockets):
    """The certificates that each end got from the other, in PEM."""
    return [ssl.DER_cert_to_PEM_cert(one.getpeercert(True)).strip()
            for one in sockets]


def test_a_new_pair_is_shown_from_the_next_handshake_on(site, pairs):
    with site.connected() as before:
        assert shown(before) == [pairs[0][0].strip()] * 2
        site.write(pairs[1])
        with site.connected() as after:
            assert shown(after) == [pairs[1][0].strip()] * 2
        before[0].sendall(b'still')
        assert before[1].recv(9) == b'still'


def test_a_pair_that_is_put_in_the_place_of_the_old(site, pairs, tmp_path):
    for path, text in zip((site.cert, site.key), pairs[1]):
        (tmp_path / 'new').write_text(text)
        (tmp_path / 'new').rename(path)
    with site.connected() as found:
        assert shown(found) == [pairs[1][0].strip()] * 2


def test_files_that_are_as_they_were_are_not_read_again(site):
    assert all(one.context() is one.context() for one in site.ends.values())


@pytest.mark.parametrize('text', ['no certificate', None, 'of another key'])
def test_what_cannot_be_used_keeps_the_old_pair(site, pairs, text, caplog):
    if text is None:
        site.cert.unlink()
    else:
        site.cert.write_text(pairs[1][0] if 'key' in text else text)
    for _ in range(2):
        with site.connected() as found:
            assert shown(found) == [pairs[0][0].strip()] * 2
    assert site.unusable() == {'server': 1, 'client': 1}
    errors = [record.getMessage() for record in caplog.records
              if record.levelname == 'ERROR']
    assert len(errors) == 2 and all(str(site.cert) in one for one in errors)
    site.write(pairs[1])
    with site.connected() as found:
        assert shown(found) == [pairs[1][0].strip()] * 2
    assert site.unusable() == {'server': 0, 'client': 0}


def test_authorities_are_read_again(site, tmp_path, pairs):
    """Nobody's certificate holds once its authority was taken out."""
    (tmp_path / 'other').mkdir()
    other = openssl.Authority(tmp_path / 'other')
    mine = tmp_path / 'mine.pem'
    mine.write_text(other.path.read_text())
    site.options.client_ca_file = str(mine)
    site.ends['server'] = certificates.of(site.options, 'server', site.counts)
    near, far = socket.socketpair()
    errors = []

    def serve():
        with contextlib.suppress(OSError):
            try:
                site.ends['server'].context().wrap_socket(
                    far, server_side=True)
            except ssl.SSLError as error:
                errors.append(error.reason)
            far.close()

    thread = threading.Thread(target=serve)
    thread.start()
    with near, contextlib.suppress(OSError):
        site.ends['client'].context().wrap_socket(near, server_hostname=HOST)
    thread.join()
    assert errors == ['CERTIFICATE_VERIFY_FAILED']
    mine.write_text(mine.read_text() + (site.options.ca_file and open(
        site.options.ca_file).read()))
    with site.connected() as found:
        assert shown(found) == [pairs[0][0].strip()] * 2


def test_a_common_name_is_no_name_of_the_leader(site, authority):
    """The same names as subjectAltName are."""
    for alternatives, found in (('', 'Hostname mismatch'),
                                ('DNS:localhost', None)):
        site.write([path.read_text() for path in authority.sign(
            'localhost', alternatives)])
        assert openssl.refusal(site.ends['client'].context(),
                               site.ends['server'].context(),
                               'localhost') == found


def test_no_certificate_no_tls(site):
    site.options.cert_file = ''
    for end in ('server', 'client'):
        assert certificates.of(site.options, end, site.counts) is None


def test_the_first_pair_must_be_good(site):
    site.cert.write_text('no certificate')
    for end in ('server', 'client'):
        with pytest.raises(exception.ConfigInvalid, match='cert_file'):
            certificates.of(site.options, end, site.counts)
