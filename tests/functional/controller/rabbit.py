# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.
"""A private RabbitMQ: own node, ports, data, cookie and port mapper."""

import os
import shutil
import socket
import subprocess

from tests import patience

SERVER = '/usr/lib/rabbitmq/bin/rabbitmq-server'


def is_missing():
    return not os.path.exists(SERVER) or shutil.which('epmd') is None


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(('127.0.0.1', 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


class Rabbit:
    def __init__(self, home):
        self.home = home
        self.port, self.dist_port, self.epmd_port = free_ports(3)
        self.url = f'rabbit://guest:guest@127.0.0.1:{self.port}/'
        self.environment = {
            'PATH': os.environ['PATH'], 'HOME': str(home),
            'HOSTNAME': 'localhost', 'ERL_EPMD_ADDRESS': '127.0.0.1',
            'ERL_EPMD_PORT': str(self.epmd_port),
            'RABBITMQ_NODENAME': f'virtco{self.port}@localhost',
            'RABBITMQ_NODE_PORT': str(self.port),
            'RABBITMQ_NODE_IP_ADDRESS': '127.0.0.1',
            'RABBITMQ_DIST_PORT': str(self.dist_port),
            'RABBITMQ_MNESIA_BASE': str(home / 'data'),
            'RABBITMQ_LOG_BASE': str(home / 'logs'),
            'RABBITMQ_PID_FILE': str(home / 'pid'),
            'RABBITMQ_ENABLED_PLUGINS_FILE': str(home / 'plugins'),
            'RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS':
                '-kernel inet_dist_use_interface {127,0,0,1}',
        }
        self.process = None

    def start(self):
        (self.home / 'plugins').write_text('[].\n')
        with open(self.home / 'output', 'wb') as output:
            self.process = subprocess.Popen(
                [SERVER], stdout=output, stderr=output, cwd=self.home,
                env=self.environment, start_new_session=True)
        patience.wait_for(self._is_up, 'the start of RabbitMQ', 90,
                          self.home / 'output')
        return self

    def _is_up(self):
        assert self.process.poll() is None, (
            self.home / 'output').read_text()
        # A TCP connection alone is accepted before it serves AMQP.
        try:
            with socket.create_connection(('127.0.0.1', self.port),
                                          1) as one:
                one.settimeout(2)
                one.sendall(b'AMQP\x00\x00\x09\x01')
                return one.recv(1) == b'\x01'
        except OSError:
            return False

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(10)
        subprocess.run(['epmd', '-port', str(self.epmd_port), '-kill'],
                       env=self.environment, capture_output=True,
                       timeout=30)
