# SPDX-License-Identifier: Apache-2.0

"""A private etcd."""

from collections.abc import Sequence
import http.client
import urllib.request

from virtco_lab.services import service


class Etcd(service.Service):
    """An etcd of one member in a directory of its own."""

    package = 'etcd-server'
    command = '/usr/bin/etcd'
    #: For tooz; etcd itself is at the ``http`` part.
    url_format = 'etcd3+http://{}:{}'
    n_more_ports = 1

    def arguments(self) -> Sequence[str]:
        clients = f'http://{service.ADDRESS}:{self.port}'
        peers = f'http://{service.ADDRESS}:{self.more_ports[0]}'
        return [f'--data-dir={self.home / "data"}', '--name=virtco',
                f'--listen-client-urls={clients}',
                f'--advertise-client-urls={clients}',
                f'--listen-peer-urls={peers}',
                f'--initial-advertise-peer-urls={peers}',
                f'--initial-cluster=virtco={peers}',
                # A leader of one is elected at once.
                '--heartbeat-interval=20', '--election-timeout=200',
                '--log-level=warn']

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(
                    f'http://{service.ADDRESS}:{self.port}/health',
                    timeout=service.ANSWER_S) as answer:
                return b'"true"' in answer.read()
        except (OSError, http.client.HTTPException):
            return False
