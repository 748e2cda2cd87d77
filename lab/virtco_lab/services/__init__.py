# SPDX-License-Identifier: Apache-2.0

"""Private databases, brokers and stores of the machine's packages.

Each class starts one service of a Debian package for tests and for a cloud on
one machine: in a directory of its own, on free ports of 127.0.0.1, and with
no regard to the service that the machine may run itself. A commit survives
``kill -9`` of its service, but not the machine's power failure.
"""

from virtco_lab.services.etcd import Etcd
from virtco_lab.services.mariadb import MariaDB
from virtco_lab.services.postgresql import PostgreSQL
from virtco_lab.services.rabbitmq import RabbitMQ
from virtco_lab.services.redis import Redis
from virtco_lab.services.service import Service
from virtco_lab.services.service import ServiceFailed
from virtco_lab.services.service import SqlService

__all__ = ['Etcd', 'MariaDB', 'PostgreSQL', 'RabbitMQ', 'Redis', 'Service',
           'ServiceFailed', 'SqlService']
