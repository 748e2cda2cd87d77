# SPDX-License-Identifier: Apache-2.0

"""Filter and weigher over answers that a controller has given."""

from oslo_config import cfg
import pytest

from nova_filters import coflow_filter
from nova_filters import coflow_weigher
from nova_filters import plugin_options as virtco_conf
from nova_filters import recent
from nova_filters import request
from tests.unit.nova_filters import test_request
from virtco import hints


class Controller:
    """Stands where a pass asks; notes which hosts it is asked about."""

    def __init__(self):
        self.answer, self.asked = None, []

    def __call__(self, spec, hosts, conf):
        self.asked.append([state.host for state in hosts])
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def conf(monkeypatch):
    found = cfg.ConfigOpts()
    virtco_conf.register_opts(found)
    found([])
    found.set_override('read_metadata', False, 'virtco')
    monkeypatch.setattr(coflow_filter, 'CONF', found)
    monkeypatch.setattr(coflow_weigher, 'CONF', found)
    monkeypatch.setattr(request, '_kept', recent.Recent(64))
    monkeypatch.setattr(request, '_read_instance', lambda spec: None)
    return found


@pytest.fixture
def controller(conf, monkeypatch):
    found = Controller()
    monkeypatch.setattr(request, 'ask', found)
    return found


def hosts(*names):
    return [test_request.make_host(host=name) for name in names or 'abc']


def spec(**found):
    hint = {'virtco:coflow': ['g'], 'virtco:index': ['0']}
    return test_request.make_spec(scheduler_hints=hint | {
        f'virtco:{key}': [value] for key, value in found.items()})


class Unsearched(list):
    """As long as the cloud, so that nobody looks through it for each host."""

    def __contains__(self, _name):
        raise AssertionError


REQUIRED = {'within': 'rack:required'}


def passed(wanted, candidates):
    return [state.host for state in coflow_filter.CoflowFilter().filter_all(
        iter(candidates), wanted)]


def weights(wanted, candidates, weigher=None):
    weigher = weigher or coflow_weigher.CoflowWeigher()
    return weigher.weigh_objects(
        [test_request.Object(obj=state) for state in candidates], wanted)


def planned(*order, **fields):
    return {'status': 'planned', 'hosts': [{'host': host}
                                           for host in order]} | fields


def test_the_hints_mean_what_the_tests_want(conf):
    assert not request.requires_a_place(spec(), conf)
    assert request.requires_a_place(spec(**REQUIRED), conf)
    # A wish without ":required".
    assert not request.requires_a_place(spec(within='rack'), conf)
    assert not request.requires_a_place(spec(within='nowhere?'), conf)
    assert not request.requires_a_place(test_request.make_spec(), conf)


def test_a_place_may_be_required_by_metadata(conf, monkeypatch):
    """Unless the hints have a matrix: then the server is not even read."""
    conf.set_override('read_metadata', True, 'virtco')
    reads = []

    def read(wanted):
        reads.append(wanted)
        return test_request.Object(metadata={
            'virtco:coflow': 'g', 'virtco:index': '0',
            'virtco:within': 'rack:required'})

    monkeypatch.setattr(request, '_read_instance', read)
    monkeypatch.setattr(request, '_may_have_metadata', lambda wanted: True)
    assert request.requires_a_place(
        test_request.make_spec(scheduler_hints={}), conf)
    assert request.requires_a_place(spec(), conf)
    assert len(reads) == 2
    assert not request.requires_a_place(spec(tm='[[0, 1], [0, 0]]'), conf)
    assert len(reads) == 2


def test_who_requires_no_place_is_asked_about_by_the_weigher(controller):
    assert passed(spec(), hosts()) == ['a', 'b', 'c']
    assert controller.asked == []
    # Nova weighs no single host.
    assert passed(spec(), hosts('b')) == ['b']
    assert controller.asked == [['b']]
    assert passed(spec(), []) == []


@pytest.mark.parametrize('answer, left', [
    (None, 'abc'), (planned('b'), 'abc'), (planned('b', allowed=[]), ''),
    (planned('b', allowed=Unsearched('cb')), 'bc'),
    (planned('b', refused='within', why='full'), ''),
    (planned('b', refused=None), 'abc'), (RuntimeError('odd'), 'abc')])
def test_a_required_place_leaves_what_keeps_to_it(controller, answer, left):
    controller.answer = answer
    assert passed(spec(**REQUIRED), hosts()) == list(left)
    assert controller.asked == [['a', 'b', 'c']]


def test_the_weigher_goes_by_what_the_filter_heard(controller):
    controller.answer = planned('b', 'a', allowed=['a', 'b'])
    wanted = spec(**REQUIRED)
    left = passed(wanted, hosts())
    assert weights(wanted, hosts(*left)) == [0.5, 1.0]
    assert len(controller.asked) == 1
    # Nobody gets it twice.
    weights(wanted, hosts(*left))
    assert controller.asked[1:] == [['a', 'b']]


@pytest.mark.parametrize('now, is_kept', [
    ('ab', True), ('b', True), ('a', False), ('abd', False)])
def test_an_answer_holds_while_its_best_host_is_there(conf, now, is_kept):
    request.keep(spec(), hosts(), planned('b', 'c'))
    assert (request.kept(spec(), hosts(*now)) is not None) == is_kept


def test_an_answer_without_hosts_is_kept(conf):
    assert request.kept(spec(), hosts()) is None
    request.keep(spec(), hosts(), planned())
    assert request.kept(spec(), hosts()) == planned()


@pytest.mark.parametrize('reject, hint, left', [
    ('reject', 'x!', ''), ('reject', '0', 'abc'), ('ignore', 'x!', 'abc')])
def test_a_bad_hint_is_rejected_where_that_is_wanted(controller, conf,
                                                     reject, hint, left):
    conf.set_override('on_bad_hint', reject, 'virtco')
    assert passed(spec(index=hint), hosts()) == list(left)


def test_a_valid_hint_is_read_once_for_all_servers(controller, conf,
                                                  monkeypatch):
    """A matrix of 50,000 flows takes 0.1 s."""
    conf.set_override('on_bad_hint', 'reject', 'virtco')
    found, read = coflow_filter.CoflowFilter(), []
    monkeypatch.setattr(hints, 'parse', lambda *given: read.append(given))
    for request_id, n_read in (('a', 1), ('a', 1), ('b', 2)):
        one = spec(index='0')
        one._context.request_id = request_id
        assert len(found.filter_all(hosts(), one)) == 3
        assert len(read) == n_read


@pytest.mark.parametrize('answer, found', [
    (planned('c', 'x', 'a', 'c', 'b'), [2 / 3, 1 / 3, 1.0]),
    (planned('c'), [0.0, 0.0, 1.0]), (None, [0.0] * 3),
    ({'status': 'neutral', 'hosts': [{'host': 'a'}], 'why': 'w'}, [0.0] * 3),
    (RuntimeError('odd'), [0.0] * 3)])
def test_hosts_weigh_by_their_rank(controller, answer, found):
    controller.answer = answer
    assert weights(spec(), hosts()) == pytest.approx(found)


@pytest.mark.parametrize('answer', [
    {'status': 'neutral', 'hosts': [], 'why': 'a\nb\x1b[2J'},
    planned('a', refused=[], why='a\nb\x1b[2J')])
def test_texts_of_tenants_are_one_line_of_the_log(controller, caplog, answer):
    controller.answer = answer
    passed(spec(**REQUIRED), hosts())
    weights(spec(), hosts())
    (said,) = caplog.messages
    assert said.endswith(r': a\nb\x1b[2J')


def test_a_bad_hint_is_one_line_of_the_log(conf, caplog):
    conf.set_override('on_bad_hint', 'reject', 'virtco')
    assert passed(spec(tm='no\nmatrix\x1b'), hosts()) == []
    (said,) = caplog.messages
    assert said.isprintable()


def test_why_it_has_no_opinion_is_told_once_per_request(controller, caplog):
    controller.answer = {'status': 'neutral', 'hosts': [], 'why': 'w7'}
    weigher = coflow_weigher.CoflowWeigher()
    for _ in range(3):
        weights(spec(), hosts(), weigher)
    assert caplog.text.count('w7') == 1


def test_the_multiplier_is_an_option(conf):
    conf.set_override('weight_multiplier', 7.5, 'virtco')
    found = coflow_weigher.CoflowWeigher()
    assert found.weight_multiplier(None) == 7.5
    assert found._weigh_object(None, None) == 0.0
    assert (found.minval, found.maxval) == (0.0, 1.0)
    assert not coflow_filter.CoflowFilter.RUN_ON_REBUILD


def test_what_was_seen_lately_is_bounded():
    found = recent.Recent(2)
    assert [found.put(key) for key in 'aabca'] == [
        True, False, True, True, True]
    assert 'c' in found and 'a' in found and 'b' not in found
    kept = recent.Recent(2)
    for number, key in enumerate('abac'):
        kept.put(key, number)
    assert [kept.pop(key) for key in 'abcc'] == [2, None, 3, None]
