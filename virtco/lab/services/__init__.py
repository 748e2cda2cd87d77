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

"""Private databases, brokers and stores of the machine's packages.

Each class starts one service of a Debian package for tests and for a cloud on
one machine: in a directory of its own, on free ports of 127.0.0.1, and with
no regard to the service that the machine may run itself. A commit survives
``kill -9`` of its service, but not the machine's power failure.
"""

from virtco.lab.services.etcd import Etcd
from virtco.lab.services.mariadb import MariaDB
from virtco.lab.services.postgresql import PostgreSQL
from virtco.lab.services.rabbitmq import RabbitMQ
from virtco.lab.services.redis import Redis
from virtco.lab.services.service import Service
from virtco.lab.services.service import ServiceFailed
from virtco.lab.services.service import SqlService

__all__ = ['Etcd', 'MariaDB', 'PostgreSQL', 'RabbitMQ', 'Redis', 'Service',
           'ServiceFailed', 'SqlService']
