# SPDX-License-Identifier: Apache-2.0

"""virtco's strategy, loaded and judged by Watcher's own classes.

Run by ``tox -e watcher``, where Watcher is installed.
"""

import datetime
from http import server
import json
import pathlib
import sys
import threading

import jsonschema
from oslo_config import cfg
import pytest
from watcher.applier.loading import default as action_loading
from watcher.common import exception as watcher_exception
from watcher.common import utils
from watcher.decision_engine.loading import default as loading
from watcher.decision_engine.model import element
from watcher.decision_engine.model import model_root
from watcher.decision_engine.scope import compute as compute_scope

from virtco import exception
from virtco.watcher import goal

SAMPLE = json.loads((pathlib.Path(__file__).parents[1] / 'fixtures'
                     / 'advice.json').read_text())['moves'][0]
PROJECT = '91fffe30-78a0-4152-acd2-8310ff274dc9'


def uuid_of(number):
    return f'00000000-0000-4000-8000-{number:012d}'


def move(number=0, **values):
    return SAMPLE | {'instance_uuid': uuid_of(number),
                     'group': f'g{number}'} | values


class Handler(server.BaseHTTPRequestHandler):
    """The controller's side of ``/v1/advice``."""

    def log_message(self, *_args):
        """Quiet."""

    def do_GET(self):
        length = int(self.headers.get('Content-Length') or 0)
        body = self.rfile.read(length)
        self.server.asked.append(
            (self.command, self.path, json.loads(body) if body else None))
        status, answer = self.server.answer
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header('Content-Length', str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET


@pytest.fixture
def controller():
    with server.ThreadingHTTPServer(('127.0.0.1', 0), Handler) as found:
        found.url = f'http://127.0.0.1:{found.server_port}'
        found.asked, found.answer = [], (200, {'moves': [move()]})
        threading.Thread(target=found.serve_forever, args=(0.02,),
                         daemon=True).start()
        yield found
        found.shutdown()


@pytest.fixture
def model():
    """Servers 0 to 3 on h0 to h3, as Watcher's collector describes them."""
    found = model_root.ModelRoot()
    for i in range(4):
        node = element.ComputeNode(
            uuid=f'n{i}', hostname=f'h{i}', memory=4096, memory_mb_reserved=0,
            memory_ratio=1, disk=100, disk_gb_reserved=0, disk_ratio=1,
            vcpus=4, vcpu_reserved=0, vcpu_ratio=1, disabled_reason=None)
        found.add_node(node)
        instance = element.Instance(
            uuid=uuid_of(i), name=f'vm{i}', memory=512, disk=1, vcpus=1,
            metadata={}, project_id=PROJECT, host=f'h{i}',
            hypervisor_hostname=f'h{i}', state='active',
            created=datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC))
        found.add_instance(instance)
        found.map_instance(instance, node)
    return found


@pytest.fixture
def load(tmp_path, monkeypatch, model):
    """As the decision engine does, by its configuration file."""
    def call(options):
        path = tmp_path / 'watcher.conf'
        path.write_text(f'[watcher_strategies.virtco]\n{options}')
        # Watcher 14 reads the command line again when it loads a plug-in.
        monkeypatch.setattr('sys.argv', ['watcher', '--config-file',
                                         str(path)])
        cfg.CONF(sys.argv[1:], project='watcher')
        found = loading.DefaultStrategyLoader().load('virtco')
        found._compute_model = model
        return found

    yield call
    cfg.CONF.reset()


@pytest.fixture
def strategy(load, controller):
    return load(f'controller_url = {controller.url}\nauth_strategy = noauth')


def run(strategy, **parameters):
    """With the defaults that Watcher's API fills in."""
    utils.StrictDefaultValidatingDraft4Validator(
        strategy.get_schema()).validate(parameters)
    strategy.input_parameters.update(parameters)
    return strategy.execute()


def moved(solution):
    return [(action['input_parameters']['resource_name'],
             action['input_parameters']['destination_node'])
            for action in solution.actions]


def test_watcher_finds_goal_and_strategy():
    strategies = loading.DefaultStrategyLoader().list_available()
    goal = loading.DefaultGoalLoader().load('coflow_completion_time')
    # The syncer of the decision engine goes by these.
    assert strategies['virtco'].get_goal_name() == goal.name
    assert strategies['virtco'].get_name() == 'virtco'
    assert [spec['name'] for spec in
            goal.efficacy_specification.get_indicators_specs_dicts()] == [
                'migrations_count', 'saved_s', 'cost_s']


def test_a_move_is_an_action_that_the_applier_takes(strategy, controller):
    solution = run(strategy)
    assert solution.actions == [{
        'action_type': 'migrate', 'input_parameters': {
            'migration_type': 'live', 'source_node': 'h0',
            'destination_node': 'h1', 'resource_name': 'vm0',
            'resource_id': uuid_of(0)}}]
    (action,) = solution.actions
    made = action_loading.DefaultActionLoader().load(
        action['action_type'], osc=None)
    made.input_parameters = action['input_parameters']
    assert made.validate_parameters()
    assert controller.asked == [('POST', '/v1/advice', {'budget_s': 5})]
    assert {one.name: (one.value, one.unit)
            for one in solution.efficacy_indicators} == {
                'migrations_count': (1, None), 'saved_s': (120.5, 's'),
                'cost_s': (4.5, 's')}
    (overall,) = solution.global_efficacy
    assert (overall.name, overall.value) == ('gain_s', 116.0)


def test_what_the_controller_found_last(strategy, controller):
    controller.answer = 200, {'moves': []}
    solution = run(strategy, budget_s=0)
    assert controller.asked == [('GET', '/v1/advice', None)]
    assert solution.actions == []
    assert solution.global_efficacy[0].value == 0


def test_no_more_than_asked_for(strategy, controller):
    controller.answer = 200, {'moves': [
        move(i, host=f'h{i}', to_host=f'h{(i + 1) % 4}') for i in range(4)]}
    assert moved(run(strategy, max_migrations=2)) == [
        ('vm0', 'h1'), ('vm1', 'h2')]


@pytest.mark.parametrize('asked', [{}, {'max_migrations': 1}])
def test_one_unless_asked_for_more(strategy, controller, asked):
    controller.answer = 200, {'moves': [
        move(), move(1, host='h1', to_host='h2')]}
    assert moved(run(strategy, **asked)) == [('vm0', 'h1')]


def test_an_audit_without_a_model_asks_nobody(strategy, controller, model):
    model.stale = True
    with pytest.raises(watcher_exception.ClusterStateNotDefined):
        run(strategy)
    assert controller.asked == []


def test_without_indicators_nothing_is_gained():
    gain, = goal.Efficacy().get_global_efficacy_indicator()
    assert gain.value == 0


@pytest.mark.parametrize('timeout_s', [0.5, 601])
def test_a_time_to_wait_that_cannot_be(load, timeout_s):
    with pytest.raises(watcher_exception.LoadingError):
        load(f'timeout_s = {timeout_s}')


@pytest.mark.parametrize('values', [
    {'state': 'migrating'}, {'state': 'refused'}, {'saved_s': 14.4},
    {'host': 'h2'}, {'to_host': 'h9'}, {'instance_uuid': uuid_of(9)}],
    ids=str)
def test_a_move_that_is_left_out(strategy, controller, values):
    """The next is taken in its place."""
    controller.answer = 200, {'moves': [
        move(**values), move(1, host='h1', to_host='h3', saved_s=14.5)]}
    assert moved(run(strategy, min_gain_s=10)) == [('vm1', 'h3')]


@pytest.mark.parametrize('of, values', [
    ('server', {'state': 'paused'}), ('server', {'locked': True}),
    ('server', {'watcher_exclude': True}), ('host', {'status': 'disabled'}),
    ('host', {'state': 'down'})])
def test_what_the_model_forbids(strategy, model, of, values):
    thing = (model.get_instance_by_uuid(uuid_of(0)) if of == 'server'
             else model.get_node_by_name('h1'))
    for name, value in values.items():
        setattr(thing, name, value)
    assert run(strategy).actions == []


def test_the_scope_of_the_audit(strategy, model):
    """As Watcher narrows its model; a server that it excludes stays."""
    strategy._compute_model = compute_scope.ComputeScope(
        [{'compute': [{'exclude': [{'instances': [
            {'uuid': uuid_of(0)}]}]}]}], None).get_scoped_model(model)
    assert run(strategy).actions == []


def test_a_drained_host_is_left_whatever_it_saves(strategy, controller):
    controller.answer = 200, {'moves': [
        move(reason='drain', saved_s=-3.0)]}
    solution = run(strategy, min_gain_s=100)
    assert moved(solution) == [('vm0', 'h1')]
    assert solution.global_efficacy[0].value == -7.5


def test_the_account_of_watcher(load):
    class Session:
        """What the strategy needs of Watcher's keystone session."""

        def __init__(self):
            self.requests = []

        def get_endpoint(self, service_type):
            return f'http://{service_type}:8791'

        def request(self, url, method, **kwargs):
            self.requests.append((method, url, kwargs['endpoint_override'],
                                  kwargs['timeout']))
            raise exception.ControllerUnavailable(url=url, why='seen')

    class Clients:
        session = Session()

    strategy = load('')
    strategy._osc = Clients()
    with pytest.raises(exception.ControllerUnavailable):
        run(strategy)
    assert Clients.session.requests == [
        ('POST', '/v1/advice', 'http://coflow:8791', 30 + 5)]


def test_a_controller_that_refuses_fails_the_audit(strategy, controller):
    controller.answer = 403, {'error': {
        'code': 'virtco.forbidden', 'title': 'Forbidden', 'detail': 'no'}}
    with pytest.raises(exception.Forbidden):
        run(strategy)


@pytest.mark.parametrize('parameters', [
    {'max_migrations': 0}, {'min_gain_s': -1}, {'budget_s': 61},
    {'budget': 5}], ids=str)
def test_parameters_that_cannot_be(strategy, parameters):
    with pytest.raises((jsonschema.ValidationError,
                        watcher_exception.AuditParameterNotAllowed)):
        run(strategy, **parameters)
