# SPDX-License-Identifier: Apache-2.0

"""A whole Nova: what its process is told, and what is changed of Nova."""

import contextlib
import dataclasses
import io
import json
import logging
import os
import sys
import types
import urllib.request

import pytest

from virtco_lab.emulation import nova_cloud
from virtco_lab.emulation import nova_stack

CONFIG = nova_stack.Config({'h0': 3}, 'http://c', '10.0.0.1',
                           {'a': 1, 'b': 2}, 'log')


@pytest.mark.parametrize('errors', [[], ['Traceback one', 'Traceback two']])
def test_a_stack_is_what_its_input_says_and_tells_its_errors(
        errors, monkeypatch, capsys):
    stacks = []

    class Stack:
        def __init__(self, config):
            stacks.append(config)

        def run(self, result):
            result.errors += [(self, text) for text in errors]

    def end(code):
        raise SystemExit(code)

    monkeypatch.setattr(nova_stack, 'Stack', Stack)
    monkeypatch.setattr(nova_stack.os, '_exit', end)
    monkeypatch.setattr(sys, 'stdin', io.StringIO(
        json.dumps(dataclasses.asdict(CONFIG)) + '\n'))
    with pytest.raises(SystemExit) as caught:
        nova_stack.main()
    assert caught.value.code == bool(errors) and stacks == [CONFIG]
    assert capsys.readouterr().err == ''.join(f'{one}\n' for one in errors)


def test_a_stack_asks_the_controller_with_patience():
    one = nova_stack.Stack(CONFIG)
    # To unittest it is a test of that name.
    assert one.id().endswith('.Stack.serve')
    assert (one.hypervisors, one.notify_controller) == ({'h0': 3}, True)
    assert one.virtco_options == {
        'controller_url': 'http://c', 'timeout_ms': 10_000,
        'request_budget_ms': 30_000}


def test_a_stack_says_where_it_serves_until_its_input_ends(
        tmp_path, monkeypatch, capsys):
    log = tmp_path / 'log'
    one = nova_stack.Stack(dataclasses.replace(CONFIG, log_file=str(log)))
    made = []
    one.create_flavor = lambda *words: made.append(words)
    one.serve_api = lambda *words: (made.append(words), 'http://nova')[1]
    monkeypatch.setattr(sys, 'stdin', io.StringIO('any words'))
    root = logging.getLogger()
    before, handlers = root.level, list(root.handlers)
    try:
        root.setLevel(logging.INFO)
        one.serve()
        logging.getLogger('nova').info('a word')
    finally:
        root.setLevel(before)
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)
            handler.close()
    assert made == [('a', 1), ('b', 2), ('10.0.0.1',)]
    assert json.loads(capsys.readouterr().out) == {'url': 'http://nova'}
    assert log.read_text().endswith(' INFO nova a word\n')
    assert sys.stdin.read() == ''


# What is changed of Nova.

@pytest.fixture(name='cloud')
def _cloud(monkeypatch):
    """One that is not set up; notes its flags."""
    one = nova_cloud.Cloud.__new__(nova_cloud.Cloud)
    one.told = []
    one.flags = lambda group=None, **options: one.told.append(
        (group, options))
    one.useFixture = lambda fixture: one.told.append(fixture)
    one.stub_out = lambda *words: one.told.append(words)
    one.cleanups = []
    one.addCleanup = lambda *words: one.cleanups.append(words)
    return one


def test_quotas_and_reserves_leave_all_to_the_slots(cloud, monkeypatch):
    cloud._options()
    flags = {}
    for group, options in cloud.told:
        flags.setdefault(group, {}).update(options)
    assert flags['wsgi']['api_paste_config'] == os.path.join(
        sys.prefix, 'etc', 'nova', 'api-paste.ini')
    assert set(flags['quota'].values()) == {-1}
    assert len(flags['quota']) == 5
    assert flags[None]['reserved_host_memory_mb'] == 0
    assert {value for name, value in flags[None].items()
            if name.endswith('_ratio')} == {1.0}


@pytest.mark.parametrize('options', [{}, {'timeout_ms': 5}])
def test_virtco_is_enabled_as_an_operator_does(cloud, options, monkeypatch):
    registered = []
    monkeypatch.setattr(nova_cloud.virtco_conf, 'register_opts',
                        registered.append)
    cloud.virtco_options = options
    cloud._options()
    flags = cloud.told
    assert ('filter_scheduler', {
        'available_filters': [
            'nova.scheduler.filters.all_filters',
            'nova_filters.coflow_filter.CoflowFilter'],
        'enabled_filters': [*nova_cloud.FILTERS, 'CoflowFilter'],
        'weight_classes': ['nova.scheduler.weights.all_weighers',
                           'nova_filters.coflow_weigher.CoflowWeigher']}
            ) in flags
    assert len(registered) == 1
    assert (('virtco', options) in flags) is bool(options)


def test_a_hypervisor_has_the_size_of_its_slots(cloud, monkeypatch):
    seen = []
    driver = types.SimpleNamespace()

    def start(host):
        fake = nova_cloud.fake.FakeDriver
        seen.append((host, fake.vcpus, fake.memory_mb, fake.local_gb))
        return types.SimpleNamespace(manager=types.SimpleNamespace(
            driver=driver))

    cloud._start_compute = start
    before = nova_cloud.fake.FakeDriver.vcpus
    cloud.hypervisors = {'h0': 3, 'h1': 5}
    found = cloud._setup_compute_service()
    assert seen == [('h0', 3, 1536, 1000), ('h1', 5, 2560, 1000)]
    assert found.manager.driver is driver
    assert vars(driver) == {'vcpus': 5, 'memory_mb': 2560, 'local_gb': 1000}
    assert nova_cloud.fake.FakeDriver.vcpus == before


def test_a_flavor_takes_slots(cloud):
    asked = []
    cloud.api = types.SimpleNamespace(post_flavor=lambda body: (
        asked.append(body['flavor']), {'id': 7})[1])
    assert cloud.create_flavor('f', 3) == '7'
    cloud.create_flavor('g')
    assert asked == [
        {'id': 'f', 'name': 'f', 'vcpus': 3, 'ram': 1536, 'disk': 1},
        {'id': 'g', 'name': 'g', 'vcpus': 1, 'ram': 512, 'disk': 1}]


def test_nova_is_set_up_without_the_work_of_its_tests(cloud, monkeypatch):
    base = nova_cloud.integrated_helpers._IntegratedTestBase
    story = cloud.told
    monkeypatch.setattr(base, 'setUp', lambda self: story.append('set up'))
    monkeypatch.setattr(base, '_setup_services',
                        lambda self: story.append('services'))
    for name in ('_options', '_reserve_writes', '_notify_controller',
                 '_save_work'):
        monkeypatch.setattr(cloud, name, lambda name=name: story.append(name))
    for notifies in (False, True):
        story.clear()
        cloud.notify_controller = notifies
        cloud.setUp()
        assert len(story) == 5 + notifies
        assert story[2:] == ['_options', 'set up', '_reserve_writes',
                             '_notify_controller'][:3 + notifies]
    story.clear()
    cloud._setup_services()
    assert story == ['_save_work', 'services']


def test_idle_threads_and_logs_of_nova_cost_little(cloud):
    root = logging.getLogger()
    before = root.level
    try:
        cloud._save_work()
        assert root.level == logging.INFO
    finally:
        root.setLevel(before)
    assert cloud.told[1:] == [
        ('api', {'response_validation': 'ignore'}),
        ('notifications', {'notification_format': 'versioned'})]


def test_an_api_is_served_with_the_administrators_credentials(cloud):
    seen = []

    def app(environ, start_response):
        seen.append({name: environ[name]
                     for name in nova_cloud.DEFAULT_HEADERS})
        start_response('200 OK', [])
        return [b'found']

    cloud.api_fixture = types.SimpleNamespace(app=lambda: app)
    url = cloud.serve_api()
    try:
        assert url.startswith('http://127.0.0.1:') and url.endswith('/v2.1')
        with urllib.request.urlopen(urllib.request.Request(url, headers={
                'X-Auth-User': 'somebody'}), timeout=10) as answer:
            assert answer.read() == b'found'
    finally:
        for function, *words in cloud.cleanups:
            with contextlib.suppress(OSError):
                function(*words)
    assert seen == [nova_cloud.DEFAULT_HEADERS | {
        'HTTP_X_AUTH_USER': 'somebody'}]
    assert len(cloud.cleanups) == 2


def test_placement_is_served_to_its_administrator(cloud, monkeypatch):
    seen = []
    monkeypatch.setattr(nova_cloud.deploy, 'loadapp', lambda conf: (
        lambda environ, start: seen.append((conf, environ))))
    cloud.placement = types.SimpleNamespace(fixture=types.SimpleNamespace(
        conf_fixture=types.SimpleNamespace(conf='conf')))
    served = []
    cloud._serve = lambda *words: (served.append(words), 'url')[1]
    assert cloud.serve_placement('10.0.0.1', 5) == 'url'
    (app, *where), = served
    assert where == ['10.0.0.1', 5]
    app({'a': 'b'}, None)
    assert seen == [('conf', {'a': 'b', 'HTTP_X_AUTH_TOKEN': 'admin'})]


def test_a_context_carries_its_cell(monkeypatch):
    fixture = types.SimpleNamespace(
        _default_ctxt_mgr='default',
        _real_target_cell=lambda context, mapping: (
            contextlib.nullcontext((context, mapping))))
    find = nova_cloud._get_context_manager
    assert find(fixture, types.SimpleNamespace(db_connection='own')) == 'own'
    for context in (types.SimpleNamespace(db_connection=None), None):
        assert find(fixture, context) == 'default'
    with nova_cloud._target_cell(fixture, 'context', 'cell') as found:
        assert found == ('context', 'cell')


def test_a_transaction_that_will_write_says_so_when_it_begins(cloud,
                                                              monkeypatch):
    manager_type = nova_cloud.enginefacade._TransactionContextManager
    scopes = []

    @contextlib.contextmanager
    def scope(manager, context):
        scopes.append(context)
        begin(connection)
        yield 'resource'

    monkeypatch.setattr(manager_type, '_transaction_scope', scope)
    listened = []
    monkeypatch.setattr(nova_cloud.sqlalchemy.event, 'listen',
                        lambda *words: listened.append(words))
    cloud._reserve_writes()
    patch, = cloud.told
    with patch:
        marked = manager_type._transaction_scope
    (target, name, begin), = listened
    assert (target, name) == (nova_cloud.sqlalchemy.Engine, 'begin')
    (removed, *words), = cloud.cleanups
    assert words == [target, 'begin', begin]
    said = []
    connection = types.SimpleNamespace(
        dialect=types.SimpleNamespace(name='sqlite'), info={},
        exec_driver_sql=said.append)
    writer = types.SimpleNamespace(_mode=nova_cloud.enginefacade._WRITER)
    reader = types.SimpleNamespace(_mode=nova_cloud.enginefacade._READER)
    with marked(reader, 'r') as found:
        assert found == 'resource' and not said
    with marked(writer, 'w'):
        assert said == ['BEGIN IMMEDIATE']
        assert connection.info == {'in_transaction': True}
        # Once; and what is read inside of it writes, too.
        begin(connection)
        connection.info.clear()
        with marked(reader, 'inside'):
            assert len(said) == 2
    assert scopes == ['r', 'w', 'inside']
    connection.info.clear()
    begin(connection)
    assert len(said) == 2
    connection.dialect.name = 'mysql'
    with marked(writer, 'w'):
        assert len(said) == 2


def test_the_controller_hears_by_its_own_driver(cloud, monkeypatch):
    made = []
    monkeypatch.setattr(nova_cloud.oslo_messaging, 'Notifier',
                        lambda *words, **options: made.append(options))
    cloud._notify_controller()
    assert made[0]['driver'] == 'virtco_http'
    assert made[0]['topics'] == ['versioned_notifications']
    assert cloud.told == [('nova.rpc.NOTIFIER', None)]
