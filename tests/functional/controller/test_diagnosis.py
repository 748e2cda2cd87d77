# SPDX-License-Identifier: Apache-2.0

"""Each fault is found by its code, and nothing else is."""

import contextlib
import dataclasses
import http.server
import json
import pathlib
import re
import shutil
import socket
import sqlite3
import threading
import time

import pytest
import sqlalchemy as sa

from tests import openssl
from tests.functional.controller import harness
from virtco import problems
from virtco.db import migration
from virtco.db import session as db_session
from virtco.osc import shell

ROOT = pathlib.Path(__file__).parents[3]
PAGE = ROOT / 'doc/source/admin/troubleshooting.rst'
#: Files whose faults have one finding each.
TIER = ('functional/controller/test_diagnosis.py',
        'functional/controller/test_chain_faults.py',
        'functional/controller/test_auth.py', 'unit/edge/test_own_tests.py',
        'netns/edge/test_netns_lock.py')
LOGIN = {'auth_type': 'password', 'auth_url': '{keystone}', 'username': 'u',
         'password': 'p', 'project_name': 'service',
         'user_domain_name': 'Default', 'project_domain_name': 'Default'}
TLS = {'cert_file': '{tmp}/good.pem', 'key_file': '{tmp}/good.key'}


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault of a configuration.

    :ivar options: lines of the file, beside or instead of those that work.
    :ivar code: of the finding that it makes.
    :ivar words: part of that finding.
    :ivar status: of keystone's answer to a request for a token.
    :ivar at_days: time at which it is looked for, from now.
    :ivar text: of the file, instead of the options.
    :ivar least_free_bytes: of the disk; None: as in the product.
    :ivar is_read_only: whether SQLite refuses to write.
    """

    code: str
    options: dict[str, dict[str, object]] = dataclasses.field(
        default_factory=dict)
    words: str = ''
    status: int = 201
    at_days: float = 0.0
    text: str | bytes | None = None
    least_free_bytes: int | None = None
    is_read_only: bool = False


def _nova(**options):
    return {'nova': LOGIN | options}


def _tls(**options):
    return {'distributor': TLS | options}


FAULTS = {
    'file that is no text': Fault('VC-001', text=b'\xff\xfe', words='UTF-8'),
    'file without sections': Fault('VC-001', text='port', words="No ':'"),
    'value of another kind': Fault('VC-002', {'api': {'port': 'x'}},
                                   '[api] port'),
    'value beyond the limit': Fault('VC-002', {'api': {'port': 70000}},
                                    '[api] port'),
    'value out of a list': Fault('VC-002', {'scheduler': {'order': 'best'}},
                                 '[scheduler] order'),
    'database URL': Fault('VC-002', {'database': {'connection': 'sqlite'}},
                          '[database] connection'),
    'misspelt option': Fault('VC-003', {'api': {'service_prt': 1}},
                             '[api] service_prt, service_port is meant'),
    'option of another section': Fault('VC-003', {'DEFAULT': {'lease_s': 9}},
                                       '[DEFAULT] lease_s'),
    'misspelt option of a library': Fault(
        'VC-003', {'oslo_policy': {'policy_fle': 'x'}}, 'policy_file'),
    'misspelt option of a login': Fault('VC-003', _nova(pasword='x'),
                                        '[nova] pasword'),
    'misspelt section': Fault('VC-004', {'schedular': {'order': 'sebf'}},
                              '[schedular], scheduler is meant'),
    'port of the API taken': Fault('VC-010', {'api': {'port': '{taken}'}},
                                   'address already in use'),
    'port of services taken': Fault(
        'VC-010', {'api': {'service_port': '{taken}'}}, '{taken}'),
    'port of monitoring taken': Fault(
        'VC-010', {'monitoring': {'port': '{taken}'}}, '{taken}'),
    'port of edge modules taken': Fault(
        'VC-010', {'distributor': {'port': '{taken}'}}, '{taken}'),
    'address of another machine': Fault(
        'VC-010', {'distributor': {'host': '192.0.2.1'}}, '192.0.2.1'),
    'database server that is away': Fault('VC-020', {'database': {
        'connection': 'mysql+pymysql://u:secret@127.0.0.1:{closed}/x'}}),
    'database that is a directory': Fault('VC-020', {'database': {
        'connection': 'sqlite:///{tmp}'}}),
    'database that is read-only': Fault('VC-021', {'database': {
        'connection': 'sqlite:///{tmp}/good.sqlite'}}, 'readonly',
        is_read_only=True),
    'disk of the database that is full': Fault(
        'VC-022', words='bytes are free', least_free_bytes=1 << 62),
    'schema of a newer version': Fault('VC-023', {'database': {
        'connection': 'sqlite:///{tmp}/newer.sqlite'}},
        'the schema is newer, '),
    'keystone that is away': Fault('VC-030', _nova(
        auth_url='http://127.0.0.1:{closed}/v3')),
    'keystone that fails': Fault('VC-030', _nova(), status=500),
    'password': Fault('VC-031', _nova(), '[nova]', status=401),
    'plug-in that is unknown': Fault('VC-032', _nova(auth_type='pasword'),
                                     'pasword'),
    'login without an URL': Fault('VC-032', {'nova': {
        'auth_type': 'password', 'username': 'u'}}, 'auth_url'),
    'login of the API that is missing': Fault(
        'VC-032', {'api': {'auth_strategy': 'keystone'}},
        '[keystone_authtoken]'),
    'CA of keystone': Fault('VC-033', _nova(cafile='{tmp}/none.pem'),
                            '{tmp}/none.pem: no such file'),
    'certificate that is missing': Fault(
        'VC-040', _tls(cert_file='{tmp}/none.pem'), '{tmp}/none.pem'),
    'CA of edge modules': Fault(
        'VC-040', _tls(client_ca_file='{tmp}/none.pem'), '{tmp}/none.pem'),
    'key of another certificate': Fault(
        'VC-041', _tls(key_file='{tmp}/other.key'), 'MISMATCH'),
    'certificate that is none': Fault(
        'VC-041', _tls(cert_file='{tmp}/virtco.conf')),
    'certificate that has ended': Fault(
        'VC-042', _tls(), 'it ended 1.0 days ago', at_days=3),
    'certificate that ends soon': Fault(
        'VC-043', _tls(), 'it ends in 0.2 days', at_days=1.8),
}


@contextlib.contextmanager
def read_only():
    """Have SQLite refuse to write by each new connection."""
    def refuse(connection, _record):
        connection.execute('PRAGMA query_only = 1')

    sa.event.listen(sa.Engine, 'connect', refuse)
    yield
    sa.event.remove(sa.Engine, 'connect', refuse)


@contextlib.contextmanager
def keystone(status):
    """Answer requests for a token with this status; its URL."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self._answer(200, {'version': {
                'id': 'v3.14', 'status': 'stable',
                'links': [{'rel': 'self', 'href': url}]}})

        def do_POST(self):
            self.rfile.read(int(self.headers['Content-Length']))
            self._answer(status, {'token': {
                'expires_at': '2099-01-01T00:00:00.000000Z',
                'issued_at': '2026-01-01T00:00:00.000000Z', 'methods': [],
                'user': {'id': 'u', 'name': 'u', 'domain': {}},
                'catalog': []}})

        def _answer(self, code, body):
            self.send_response(code)
            self.send_header('X-Subject-Token', 't')
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_args):
            pass

    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as found:
        url = f'http://127.0.0.1:{found.server_port}/v3'
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield url
        found.shutdown()


@pytest.fixture(scope='module')
def pairs(tmp_path_factory):
    """Two pairs of key and certificate, of two days, and two databases."""
    home = tmp_path_factory.mktemp('pairs')
    database = db_session.Database(f'sqlite:///{home}/good.sqlite')
    migration.upgrade(database)
    database.dispose()
    shutil.copy(home / 'good.sqlite', home / 'newer.sqlite')
    with contextlib.closing(sqlite3.connect(home / 'newer.sqlite')) as newer:
        newer.execute("UPDATE alembic_version SET version_num = 'newer'")
        newer.commit()
    authority = openssl.Authority(home)
    authority.sign('good')
    authority.sign('other')
    return home


@pytest.fixture
def fill(tmp_path, pairs):
    """Puts paths and ports into a text."""
    with (socket.create_server(('127.0.0.1', 0)) as taken,
          socket.socket() as closed):
        closed.bind(('127.0.0.1', 0))
        values = {'taken': taken.getsockname()[1], 'tmp': tmp_path,
                  'closed': closed.getsockname()[1]}
        for path in pairs.iterdir():
            (tmp_path / path.name).symlink_to(path)

        def filled(text, **more):
            for name, value in (values | more).items():
                text = text.replace(f'{{{name}}}', str(value))
            return text
        yield filled


@pytest.fixture
def diagnose(tmp_path, fill, capsys, monkeypatch):
    """Code and finding of each problem of a configuration."""
    def call(fault):
        base = {'api': {'port': 0}, 'distributor': {'port': 0},
                'controller': {'state_dir': '{tmp}/state'}}
        for section, options in fault.options.items():
            base[section] = base.get(section, {}) | options
        text = ''.join(f'[{section}]\n' + ''.join(
            f'{name} = {value}\n' for name, value in options.items())
            for section, options in base.items())
        path = tmp_path / 'virtco.conf'
        now_s = time.time() + 86400 * fault.at_days
        monkeypatch.setattr('virtco.configuration.time.time', lambda: now_s)
        if fault.least_free_bytes is not None:
            monkeypatch.setattr('virtco.selftest.LEAST_FREE_BYTES',
                                fault.least_free_bytes)
        with keystone(fault.status) as url, (
                read_only() if fault.is_read_only
                else contextlib.nullcontext()):
            path.write_bytes(fault.text if isinstance(fault.text, bytes)
                             else fill(fault.text or text,
                                       keystone=url).encode())
            code = shell.main(['doctor', '--config-file', str(path), '-f',
                               'json'])
        out, err = capsys.readouterr()
        assert 'Traceback' not in err
        rows = json.loads(out)
        assert code == any(row['state'] == 'error' for row in rows)
        return [(row['code'], row['finding']) for row in rows
                if row['state'] != 'ok']
    return call


@pytest.mark.parametrize('name', FAULTS)
def test_a_fault_is_named_and_nothing_else(name, diagnose, fill):
    fault = FAULTS[name]
    (code, finding), = diagnose(fault)
    assert code == fault.code
    assert fill(fault.words) in finding
    assert 'secret' not in finding


def test_a_configuration_that_works_has_no_problem(diagnose):
    assert diagnose(Fault('', _nova() | _tls())) == []
    assert diagnose(Fault('', {'oslo_messaging_rabbit': {
        'rabbit_quorum_queue': 'true'}, 'DEFAULT': {'debug': 'true'}})) == []


def test_the_page_has_an_entry_of_each_code():
    entries = re.findall(r'^ {3}(VC-\d+)$', PAGE.read_text(), re.MULTILINE)
    assert entries == sorted(problems.KINDS)


def test_each_code_has_a_fault():
    """In this file, or in one of those that ask for nothing else, too."""
    found = {code for name in TIER for code in re.findall(
        r"'(VC-\d+)", (ROOT / 'tests' / name).read_text())}
    assert found == set(problems.KINDS)


def test_a_running_controller_says_that_its_token_is_refused(make):
    with keystone(401) as url:
        login = {name: url if name == 'auth_url' else value
                 for name, value in LOGIN.items()}
        controller = make({'nova': login, 'api': {'service_prt': 1}})
        harness.wait_for(lambda: controller.call(
            'GET', '/health')['status'] == 'degraded', 'the first test')
        found = controller.call('GET', '/health')['problems']
        assert [one['code'] for one in found] == ['VC-003', 'VC-031']
        assert 'VC-031: [nova]' in controller.log_text()
        assert 'Traceback' not in controller.log_text()
