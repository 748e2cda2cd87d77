# SPDX-License-Identifier: Apache-2.0

"""What the controller is told, without Nova."""

import json
import sys
import types

import msgspec
from oslo_config import cfg
import pytest

from nova_filters import planclient
from nova_filters import plugin_options as virtco_conf
from nova_filters import recent
from nova_filters import request
from virtco.wire import placement as wire


class Object:
    """Like an object of Nova's: ``in`` tells whether a field is set."""

    def __init__(self, **fields):
        self.__dict__.update(fields)

    def __contains__(self, name):
        return name in self.__dict__


@pytest.fixture
def conf():
    found = cfg.ConfigOpts()
    virtco_conf.register_opts(found)
    found([])
    return found


@pytest.fixture
def queries(monkeypatch):
    """Instances asked about; ``answer`` is what the database says."""
    asked = types.SimpleNamespace(uuids=[], answer=False)
    module = types.ModuleType('metadata_query')

    def has_virtco_keys(_context, uuid):
        asked.uuids.append(uuid)
        if isinstance(asked.answer, Exception):
            raise asked.answer
        return asked.answer

    module.has_virtco_keys = has_virtco_keys
    monkeypatch.setitem(sys.modules, 'nova_filters.metadata_query', module)
    import nova_filters
    monkeypatch.setattr(nova_filters, 'metadata_query', module,
                        raising=False)
    monkeypatch.setattr(request, '_without_metadata', recent.Recent())
    return asked


def make_spec(**fields):
    return Object(**{
        'project_id': 'p', 'user_id': 'u', 'instance_uuid': 'i-1',
        'num_instances': 1, 'scheduler_hints': {},
        '_context': Object(request_id='req-1'),
        'flavor': Object(vcpus=2, memory_mb=512, root_gb=10, ephemeral_gb=5,
                         swap=1024), **fields})


def make_host(**fields):
    return Object(**{
        'host': 'h1', 'nodename': 'n1', 'vcpus_total': 8, 'vcpus_used': 3,
        'cpu_allocation_ratio': 4.0, 'total_usable_ram_mb': 1000,
        'free_ram_mb': 100, 'ram_allocation_ratio': 1.5,
        'total_usable_disk_gb': 100, 'disk_mb_used': 10 * 1024,
        'disk_allocation_ratio': None, 'free_disk_mb': 0, **fields})


@pytest.mark.parametrize('spec', [
    make_spec(), make_spec(user_id=None, instance_group=Object(
        policy='anti-affinity', members=['i-1'], hosts=['h1'],
        rules={'max_server_per_host': 2}))])
def test_the_body_is_of_the_declared_type(spec):
    """Though Nova's process builds it without the type."""
    body = request.build(
        spec, [make_host()], {'virtco:coflow': 'a', 'virtco:tm': ['1', '2']},
        {}, Object(display_name='v', reservation_id='r', launch_index=3))
    body['unplanned_passes'] = 1
    found = msgspec.convert(json.loads(json.dumps(body)), wire.Placement)
    assert msgspec.to_builtins(found) == body | {'instance_uuid': ''}


def test_an_answer_of_the_declared_type_is_understood():
    link = types.SimpleNamespace(url='http://c')
    client = planclient.PlanClient(link, timeout_s=1, budget_s=1,
                                   breaker=planclient.Breaker(1))
    for answer in (wire.Answer(instance_uuid='i', status='neutral'),
                   wire.Answer(instance_uuid='i', status='planned', host='h1',
                               hosts=[wire.RankedHost('h1', 0)], row=0,
                               rows={'0': 'h1'}, allowed=['h1'])):
        assert client._checked(msgspec.json.encode(answer)) == (
            msgspec.to_builtins(answer))


@pytest.mark.parametrize('specs, egress_cap_bps', [
    ({'quota:vif_outbound_average': '250000'}, 2e9), ({}, None),
    (None, None)])
def test_caps_of_the_flavor_are_sent(specs, egress_cap_bps):
    flavor = make_spec().flavor
    if specs is not None:
        flavor.extra_specs = specs
    body = request.build(make_spec(flavor=flavor), [make_host()], {}, {},
                         None)
    assert body['egress_cap_bps'] == egress_cap_bps
    assert body['ingress_burst_bytes'] == 0


def test_capacity_counts_overcommitment():
    body = request.build(make_spec(), [make_host()], {}, {}, None)
    assert body['flavor'] == {'vcpus': 2, 'memory_mb': 512, 'disk_gb': 16}
    assert body['hosts'] == [{'host': 'h1', 'node': 'n1', 'free': {
        'vcpus': 29, 'memory_mb': 600, 'disk_gb': 90}}]


def test_a_full_host_has_nothing_left_and_a_volume_no_root_disk():
    body = request.build(
        make_spec(is_bfv=True),
        [make_host(free_ram_mb=-9000, vcpus_used=99, disk_mb_used=1e9)],
        {}, {}, None)
    assert body['flavor']['disk_gb'] == 6
    assert set(body['hosts'][0]['free'].values()) == {0}


@pytest.mark.parametrize('group, expected', [
    (None, None), (Object(policy=None), None),
    (Object(policy='anti-affinity', members=['i'], hosts=['h2', 'h1'],
            rules={'max_server_per_host': '3'}),
     {'policy': 'anti-affinity', 'members': ['i'], 'hosts': ['h1', 'h2'],
      'max_per_host': 3}),
    (Object(policy='affinity', members=None, hosts=None),
     {'policy': 'affinity', 'members': [], 'hosts': [],
      'max_per_host': 1})])
def test_server_group(group, expected):
    body = request.build(make_spec(instance_group=group), [], {}, {}, None)
    assert body['server_group'] == expected


def test_the_instance_adds_what_the_request_lacks():
    instance = Object(display_name='a-2', reservation_id='r-1',
                      launch_index=1)
    body = request.build(make_spec(), [], {'virtco:coflow': 'a'}, {},
                         instance)
    assert (body['display_name'], body['reservation_id'],
            body['launch_index']) == ('a-2', 'r-1', 1)


def test_one_query_per_request_without_hint(conf, queries):
    for number in range(19):
        spec = make_spec(instance_uuid=f'i-{number}',
                         scheduler_hints={'same_host': ['x']})
        assert request.read_hints(spec, conf) == ({}, {}, None)
    assert queries.uuids == ['i-0']
    request.read_hints(make_spec(_context=Object(request_id='req-2')), conf)
    assert len(queries.uuids) == 2


def test_no_query_when_metadata_does_not_count(conf, queries):
    conf.set_override('read_metadata', False, group='virtco')
    assert request.read_hints(make_spec(), conf) == ({}, {}, None)
    assert queries.uuids == []


def test_a_broken_query_is_no_hint(conf, queries, caplog):
    queries.answer = RuntimeError('database is away')
    assert request.read_hints(make_spec(), conf) == ({}, {}, None)
    assert 'database is away' in caplog.text


def test_a_nova_with_another_database_is_no_hint(conf, monkeypatch, caplog):
    import nova_filters
    monkeypatch.setitem(sys.modules, 'nova_filters.metadata_query', None)
    monkeypatch.delattr(nova_filters, 'metadata_query', raising=False)
    monkeypatch.setattr(request, '_without_metadata', recent.Recent())
    assert request.read_hints(make_spec(), conf) == ({}, {}, None)
    assert 'metadata_query' in caplog.text


def test_hints_and_metadata_hold_our_keys_only(conf, queries, monkeypatch):
    monkeypatch.setattr(request, '_read_instance', lambda spec: Object(
        metadata={'role': 'x', 'virtco:index': '3'}))
    spec = make_spec(scheduler_hints={'virtco:coflow': ['a'],
                                      'group': ['g']})
    found, metadata, _instance = request.read_hints(spec, conf)
    assert (found, metadata) == ({'virtco:coflow': 'a'},
                                 {'virtco:index': '3'})
    assert queries.uuids == []


class Client:
    """Notes what it is asked for.

    :param may_ask: whether there is time for a call.
    :param knows: whether the request was asked about before.
    """

    def __init__(self, may_ask, knows=False):
        self._may_ask, self._knows, self.asked = may_ask, knows, []

    def may_ask(self, request_id):
        return self._may_ask

    def knows(self, request_id):
        return self._knows

    def recall(self, uuid, request_id, offers):
        self.asked.append(('recall', uuid, request_id, offers()))
        return {'status': 'recalled'}

    def place(self, uuid, body, request_id, since_s):
        self.asked.append(('place', uuid, request_id, body))
        return {'status': 'placed'}


HINTS = {'virtco:coflow': ['a'], 'virtco:tm': ['[[0, 1], [0, 0]]']}


@pytest.mark.parametrize('hinted, may_ask, knows, status', [
    (True, True, False, 'placed'), (False, True, False, None),
    (True, False, False, 'recalled'), (False, False, True, 'recalled'),
    (False, False, False, None)])
def test_who_is_asked_about(conf, queries, monkeypatch, hinted, may_ask,
                            knows, status):
    client = Client(may_ask, knows)
    monkeypatch.setattr(planclient, 'get_client', lambda conf: client)
    monkeypatch.setattr(request, '_read_instance', lambda spec: None)
    found = request.ask(make_spec(scheduler_hints=HINTS if hinted else {}),
                        [make_host()], conf)
    assert (found and found['status']) == status
    assert [one[:3] for one in client.asked] == (
        [({'placed': 'place', 'recalled': 'recall'}[status], 'i-1', 'req-1')]
        if status else [])
    if status == 'placed':
        assert client.asked[0][3]['hints'] == request._scheduler_hints(
            make_spec(scheduler_hints=HINTS))
    if status:
        told = client.asked[0][3]
        offers = told['hosts'] if status == 'placed' else told
        assert [one['host'] for one in offers] == ['h1']


def test_a_server_with_such_metadata_is_read_again(queries):
    queries.answer = True
    for _ in range(2):
        assert request._may_have_metadata(make_spec())
    assert queries.uuids == ['i-1', 'i-1']


@pytest.mark.parametrize('answer', [False, RuntimeError('away')])
def test_a_server_without_such_metadata_is_not_read(conf, queries, answer,
                                                    monkeypatch):
    reads = []
    monkeypatch.setattr(request, '_read_instance', reads.append)
    queries.answer = answer
    for _ in range(2):
        assert request.read_hints(make_spec(), conf) == ({}, {}, None)
    assert queries.uuids == ['i-1'] and reads == []


def test_what_a_request_does_not_say():
    flavor = Object(vcpus=1, memory_mb=64, root_gb=3, ephemeral_gb=None,
                    swap=None)
    body = request.build(make_spec(flavor=flavor), [], {}, {}, None)
    assert body['flavor'] == {'vcpus': 1, 'memory_mb': 64, 'disk_gb': 3}
    assert (body['launch_index'], body['display_name'],
            body['reservation_id'], body['server_group']) == (
                0, None, None, None)
    bare = Object(launch_index=None)
    assert request.build(make_spec(), [], {}, {}, bare)['launch_index'] == 0
    nobody = make_spec()
    del nobody.user_id
    assert request.build(nobody, [], {}, {}, None)['user_id'] is None
    host = make_host(cpu_allocation_ratio=None, ram_allocation_ratio=None,
                     disk_allocation_ratio=2.0)
    assert request.build(make_spec(), [host], {}, {}, None)['hosts'][0][
        'free'] == {'vcpus': 5, 'memory_mb': 100, 'disk_gb': 190}


@pytest.mark.parametrize(('swap', 'disk_gb'), [
    (0, 15), (1, 16), (1024, 16), (1025, 17)])
def test_placement_claims_whole_gigabytes_of_swap(swap, disk_gb):
    spec = make_spec()
    spec.flavor.swap = swap
    assert request.build(spec, [], {}, {}, None)['flavor'][
        'disk_gb'] == disk_gb


def test_a_request_without_an_id_is_that_of_its_server():
    for context in (Object(), Object(request_id=None)):
        assert request.request_id(make_spec(_context=context)) == 'i-1'
    assert request.request_id(make_spec()) == 'req-1'
