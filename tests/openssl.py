# SPDX-License-Identifier: Apache-2.0

"""Certificates made by the command openssl."""

import contextlib
import socket
import ssl
import subprocess
import threading

_CURVE = ('-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1',
          '-nodes')


class Authority:
    """A certificate authority, whose files are in one directory.

    :ivar path: its own certificate.
    """

    def __init__(self, home):
        self.home = home
        self.path = home / 'ca.pem'
        self._run('req', '-x509', *_CURVE, '-keyout', 'ca.key', '-out',
                  'ca.pem', '-subj', '/CN=test CA', '-days', '2',
                  '-addext', 'keyUsage=critical,keyCertSign,cRLSign')

    def sign(self, name, alternatives=None, file=None, days=2):
        """Make a key and a certificate.

        :param alternatives: the value of subjectAltName, '' for none; None:
            the name.
        :param days: until it expires; -1: yesterday.
        :returns: the paths of both.
        """
        if alternatives is None:
            kind = 'IP' if name[0].isdigit() else 'DNS'
            alternatives = f'{kind}:{name}'
        file = file or name
        (self.home / 'ext').write_text(
            'authorityKeyIdentifier=keyid\n' + (
                f'subjectAltName={alternatives}\n' if alternatives else ''))
        self._run('req', *_CURVE, '-keyout', f'{file}.key', '-out',
                  f'{file}.csr', '-subj', f'/CN={name}')
        self._run('x509', '-req', '-in', f'{file}.csr', '-CA', 'ca.pem',
                  '-CAkey', 'ca.key', '-CAcreateserial', '-out',
                  f'{file}.pem', '-days', str(days), '-extfile', 'ext')
        return self.home / f'{file}.pem', self.home / f'{file}.key'

    def _run(self, *args):
        subprocess.run(['openssl', *args], check=True, capture_output=True,
                       cwd=self.home)


def refusal(client, server, name):
    """Shake hands over a pair of sockets.

    :param name: of the server, as its client knows it.
    :returns: the beginning of why the client refuses the server's
        certificate; None where it does not.
    """
    near, far = socket.socketpair()

    def serve():
        with far, contextlib.suppress(OSError):
            server.wrap_socket(far, server_side=True).close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with near, client.wrap_socket(near, server_hostname=name):
            return None
    except ssl.SSLCertVerificationError as error:
        return error.verify_message.partition(',')[0]
    finally:
        thread.join()
