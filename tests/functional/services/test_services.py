# SPDX-License-Identifier: Apache-2.0

"""Services of the machine's packages, started privately."""

import pathlib
import subprocess
import sys

import psutil
import pytest

from tests import patience
from virtco.leadership import lock as locks
from virtco_lab import services

CLASSES = (services.Etcd, services.MariaDB, services.PostgreSQL,
           services.Redis)


@pytest.mark.parametrize('service', CLASSES,
                         ids=lambda service: service.__name__)
def test_a_service_starts_dies_and_starts_again(service):
    if service.is_missing():
        pytest.skip(f'Debian package {service.package} is missing')
    with service() as running:
        assert running.is_up()
        home, pid = running.home, running.process.pid
        if isinstance(running, services.SqlService):
            running.create_database('a')
        running.kill()
        assert not running.is_up()
        running.start()
        assert running.process.pid != pid
        if isinstance(running, services.SqlService):
            running.create_database('b')
        children = psutil.Process(running.process.pid).children(True)
    assert not home.exists()
    assert not [one for one in children if one.is_running()]


def test_what_does_not_start_says_why(tmp_path):
    if services.Redis.is_missing():
        pytest.skip('Debian package redis-server is missing')
    with services.Redis(tmp_path / 'first') as first:
        second = services.Redis(tmp_path / 'second', first.port)
        second.is_up = lambda: False  # the first one answers for it
        with pytest.raises(services.ServiceFailed) as error:
            second.start()
    assert 'Redis of package redis-server ended with status 1' in str(
        error.value)
    assert 'Address already in use' in str(error.value)
    assert pathlib.Path(second.home).exists()


def test_one_that_has_ended_takes_nobody_along(tmp_path):
    with subprocess.Popen(
            [sys.executable, '-c', 'import subprocess, sys\n'
             'child = subprocess.Popen(["sleep", "60"])\n'
             'print(child.pid, flush=True)\nsys.stdin.read()'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        child = psutil.Process(int(other.stdout.readline()))
        service = services.Redis(tmp_path)
        service.process = subprocess.Popen(['true'])
        service.process.wait()
        # The kernel gave its number to another process.
        service.process.pid = other.pid
        service.kill()
        assert child.status() != psutil.STATUS_ZOMBIE
        child.kill()


#: A process that holds the lock may stand still for seconds.
LEASE_S = 8.0
KEEPERS = {'etcd': services.Etcd, 'mariadb': services.MariaDB,
           'postgresql': services.PostgreSQL, 'redis': services.Redis}


@pytest.mark.parametrize('service', KEEPERS.values(), ids=KEEPERS)
def test_one_of_two_holds_the_lock(service):
    if service.is_missing():
        pytest.skip(f'Debian package {service.package} is missing')
    with service() as running:
        url = running.url
        if isinstance(running, services.SqlService):
            url = locks.of_database(running.create_database('a'))
        one, other = (locks.Lock(url, LEASE_S, b'virtco-a') for _ in range(2))
        for _ in range(3):
            assert one.hold() and not other.hold()
        one.close()
        assert other.hold()
        # The service forgets it, and it notices.
        running.kill()
        watch = patience.Answer()
        assert not other.hold()
        assert watch.seconds() < LEASE_S
        running.start()
        patience.wait_for(other.hold, 'the lock')
        other.close()
