# SPDX-License-Identifier: Apache-2.0

"""What each private service is told at its start, and when it is up: servers
that answer as it does, and programs that write down how they are called.
"""

import contextlib
import os
import socket
import threading

import pytest

from virtco_lab import services
from virtco_lab.services import postgresql
from virtco_lab.services import service


class PostgreSQL(services.PostgreSQL):
    user = None


class MariaDB(services.MariaDB):
    user = None


@contextlib.contextmanager
def _answering(answer, asked=b''):
    """Yield the port of a server that says this to one client."""
    def serve():
        with listening.accept()[0] as client:
            got = b''
            while len(got) < len(asked):
                got += client.recv(len(asked) - len(got))
            if got == asked:
                client.sendall(answer)
            # What is unread at the end would take the answer along.
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_WR)
                while client.recv(4096):
                    pass

    with socket.create_server((service.ADDRESS, 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        yield listening.getsockname()[1]
        thread.join()


@pytest.fixture(name='programs')
def _programs(tmp_path, monkeypatch):
    """A directory of programs that note their words in ``calls``."""
    path = tmp_path / 'bin'
    path.mkdir()
    monkeypatch.setenv('PATH', f'{path}:{os.environ["PATH"]}')

    def add(name, status=0, folder=path):
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >>{tmp_path}/calls\n'
                           f'echo Done\nexit {status}\n')
        program.chmod(0o755)

    def calls():
        found = (tmp_path / 'calls').read_text().splitlines()
        (tmp_path / 'calls').unlink()
        return found

    add.calls = calls
    return add


_HEALTH = b'HTTP/1.0 200 OK\r\n\r\n{"health":"%s"}'


@pytest.mark.parametrize(('kind', 'asked', 'yes', 'no'), [
    (services.Etcd, b'GET /health', _HEALTH % b'true', _HEALTH % b'false'),
    (services.Etcd, b'GET /health', _HEALTH % b'true', b'no HTTP\r\n\r\n'),
    (MariaDB, b'', b'\x4a\x00\x00\x00\x0a11.8', b'\x4a\x00\x00\x00\xff11.8'),
    (services.RabbitMQ, b'AMQP\x00\x00\x09\x01', b'\x01\x00\x00', b'AM'),
    (services.Redis, b'PING\r\n', b'+PONG\r\n', b'-LOADING\r\n')])
def test_a_service_is_up_when_it_answers_its_protocol(
        kind, asked, yes, no, tmp_path):
    with _answering(yes, asked) as port:
        assert kind(tmp_path, port).is_up() is True
    with _answering(no, asked) as port:
        assert kind(tmp_path, port).is_up() is False
    assert kind(tmp_path, port).is_up() is False


@pytest.mark.parametrize('kind', [services.Etcd, MariaDB, PostgreSQL,
                                  services.RabbitMQ, services.Redis])
def test_clients_and_server_are_told_the_same_port(kind, tmp_path):
    one = kind(tmp_path, 4711)
    assert ':4711' in one.url
    said = [*one.arguments(), *one.environment().values()]
    assert any('4711' in word for word in said)


def test_the_ports_of_one_service_are_different(tmp_path):
    etcd = services.Etcd(tmp_path)
    urls = {word.rpartition(':')[2] for word in etcd.arguments()
            if 'listen' in word}
    assert len(urls) == 2
    assert str(etcd.port) in urls
    said = services.RabbitMQ(tmp_path).environment()
    assert len({said[name] for name in (
        'RABBITMQ_NODE_PORT', 'RABBITMQ_DIST_PORT', 'ERL_EPMD_PORT')}) == 3


def test_both_databases_serve_as_many_connections(tmp_path):
    assert '--max-connections=500' in MariaDB(tmp_path).arguments()
    assert 'max_connections=500' in PostgreSQL(tmp_path).arguments()


def test_mariadb_makes_its_data_and_each_database_anew(programs, tmp_path):
    programs('mariadb-install-db')
    programs('mariadb')
    server = MariaDB(tmp_path, 4711)
    server.prepare()
    assert f' --datadir={tmp_path}/data ' in programs.calls()[0]
    assert server.create_database('one') == (
        'mysql+pymysql://root@127.0.0.1:4711/one')
    asked, = programs.calls()
    assert asked.endswith('DROP DATABASE IF EXISTS one; CREATE DATABASE one')
    assert f'--socket={tmp_path}/socket' in asked
    assert f'--socket={tmp_path}/socket' in server.arguments()


@pytest.fixture(name='postgresql_programs')
def _postgresql(programs, tmp_path, monkeypatch):
    monkeypatch.setattr(postgresql, '_VERSIONS', tmp_path)
    for version in ('9.6', '15', '14'):
        programs('postgres', folder=tmp_path / version / 'bin')
    newest = tmp_path / '15' / 'bin'
    for name in ('initdb', 'psql'):
        programs(name, folder=newest)
    return newest


def test_the_newest_postgresql_is_taken(postgresql_programs, tmp_path,
                                        monkeypatch):
    assert postgresql._programs() == postgresql_programs
    monkeypatch.setattr(postgresql, '_VERSIONS', tmp_path / 'none')
    assert postgresql._programs() == tmp_path / 'none'


def test_postgresql_makes_its_data_and_each_database_anew(
        programs, postgresql_programs, tmp_path):
    server = PostgreSQL(tmp_path, 4711)
    server.user = 'us'
    server.as_user = list
    server.prepare()
    assert programs.calls()[0].startswith(f'initdb -D {tmp_path}/data -A')
    assert server.create_database('one') == (
        'postgresql+psycopg2://postgres@127.0.0.1:4711/one')
    drop, create = programs.calls()
    assert drop.endswith('DROP DATABASE IF EXISTS one WITH (FORCE)')
    assert create.endswith('CREATE DATABASE one')
    assert ' -p 4711 -U us ' in create


def test_postgresql_is_up_once_it_accepts_sessions(
        programs, postgresql_programs, tmp_path):
    asked = b'\x00\x00\x00\x08\x04\xd2\x16\x2f'
    for status, answer, is_up in ((0, b'N', True), (0, b'S', True),
                                  (0, b'E', False), (1, b'N', False)):
        programs('pg_isready', status, postgresql_programs)
        with _answering(answer, asked) as port:
            assert PostgreSQL(tmp_path, port).is_up() is is_up
        if answer != b'E':
            assert f'-p {port} -q' in programs.calls()[0]
    assert PostgreSQL(tmp_path, service.free_ports(1)[0]).is_up() is False


def test_postgresql_is_missing_where_its_server_is():
    class Missing(PostgreSQL):
        command = '/usr/lib/postgresql/postgres'

    class Present(PostgreSQL):
        command = '/bin/sh'

    assert Missing.is_missing()
    assert not Present.is_missing()


def test_rabbitmq_needs_its_port_mapper(programs, tmp_path, monkeypatch):
    class Present(services.RabbitMQ):
        command = '/bin/sh'

    class Missing(services.RabbitMQ):
        command = '/no/such/server'

    monkeypatch.setenv('PATH', str(tmp_path / 'bin'))
    assert Present.is_missing()
    programs('epmd')
    assert not Present.is_missing()
    assert Missing.is_missing()


def test_rabbitmq_ends_its_port_mapper_and_has_no_plugins(
        programs, tmp_path, capfd):
    programs('epmd')
    server = services.RabbitMQ(tmp_path)
    server.prepare()
    said = server.environment()
    plugins = said['RABBITMQ_ENABLED_PLUGINS_FILE']
    assert open(plugins).read() == '[].\n'
    assert server.arguments() == []
    server.stop()
    assert programs.calls() == [f'epmd -port {said["ERL_EPMD_PORT"]} -kill']
    assert not capfd.readouterr().out
