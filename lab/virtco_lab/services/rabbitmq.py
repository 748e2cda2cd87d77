# SPDX-License-Identifier: Apache-2.0

"""A private RabbitMQ: node, cookie and port mapper of its own."""

from collections.abc import Mapping
from collections.abc import Sequence
import shutil
import subprocess

from virtco_lab.services import service


class RabbitMQ(service.Service):
    """A RabbitMQ broker in a directory of its own."""

    package = 'rabbitmq-server'
    # The one on the path changes to a user of its own.
    command = '/usr/lib/rabbitmq/bin/rabbitmq-server'
    url_format = 'rabbit://guest:guest@{}:{}/'
    #: For other nodes, and of the port mapper.
    n_more_ports = 2

    @classmethod
    def is_missing(cls) -> bool:
        return super().is_missing() or shutil.which('epmd') is None

    def prepare(self) -> None:
        (self.home / 'plugins').write_text('[].\n')

    def arguments(self) -> Sequence[str]:
        return []

    def environment(self) -> Mapping[str, str]:
        return {
            **super().environment(),
            'HOSTNAME': 'localhost', 'ERL_EPMD_ADDRESS': service.ADDRESS,
            'ERL_EPMD_PORT': str(self.more_ports[1]),
            'RABBITMQ_NODENAME': f'virtco{self.port}@localhost',
            'RABBITMQ_NODE_PORT': str(self.port),
            'RABBITMQ_NODE_IP_ADDRESS': service.ADDRESS,
            'RABBITMQ_DIST_PORT': str(self.more_ports[0]),
            'RABBITMQ_MNESIA_BASE': str(self.home / 'data'),
            'RABBITMQ_LOG_BASE': str(self.home / 'logs'),
            'RABBITMQ_PID_FILE': str(self.home / 'pid'),
            'RABBITMQ_ENABLED_PLUGINS_FILE': str(self.home / 'plugins'),
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                '-kernel inet_dist_use_interface {127,0,0,1}',
        }

    def is_up(self) -> bool:
        # A TCP connection alone is accepted before it serves AMQP.
        return service.exchange(
            self.port, b'AMQP\x00\x00\x09\x01') == b'\x01'

    def stop(self) -> None:
        super().stop()
        # The port mapper has a session of its own, and ends only after its
        # nodes.
        subprocess.run(['epmd', '-port', str(self.more_ports[1]), '-kill'],
                       env=dict(self.environment()), capture_output=True)
