# SPDX-License-Identifier: Apache-2.0

"""What the API answers of checks, measured matrices and performers."""

import pytest

from tests.unit import made
from tests.unit import stored
from tests.unit.api import service


def test_an_estimate_is_shown_of_its_own_pairs(own):
    """Until the next estimate, others may have come in their places."""
    rates = own.rooms.state.rates
    rates.add(made.measurement('h0', 'h1', 1e8), 900)
    rates.refresh(1000.0)
    rates.forget({'h0'})
    rates.add(made.measurement('h1', 'h2', 7e8), 990)
    assert own.get('/v1/matrices/rate')['values'] == [
        [None, 7e8], [None, None]]


def test_checks_are_of_hosts_a_group_or_all(own, monkeypatch):
    # Another process leads, which will take them up.
    monkeypatch.setattr(own.rooms.decide.orders, '_leads', False)
    own.add(stored.group('empty'))
    path = '/v1/checks'

    def checked(body):
        found = own.send('POST', path, body)
        assert found.status_code == 202, found.text
        assert own.get(f'{path}/{found.json["check_id"]}')['hosts'] == (
            found.json['hosts'])
        return sorted(found.json['hosts']), found.json['purpose']

    assert checked({'hosts': ['h0', 'h2']}) == (['h0', 'h2'], 'check')
    for group in ('p-a', 'a'):
        assert checked({'group': group}) == (['h0', 'h1', 'h2'], 'check')
    own.rooms.state.report('h7', made.report())
    own.rooms.state.report('h8', made.report())
    # Of this one nobody heard.
    own.rooms.state.live.meet(['h9'], 1.0)
    assert checked({'purpose': 'discover'}) == (
        ['h0', 'h1', 'h2', 'h7', 'h8'], 'discover')
    four = ['h0', 'h1', 'h2', 'h7']
    assert checked({'purpose': 'discover', 'hosts': four}) == (
        four, 'discover')
    assert len(own.get(path)['checks']) == 5
    for body, value in (({}, None), ({'purpose': 'check'}, None),
                        ({'hosts': ['h0', 'h1'], 'group': 'p-a'}, 'both')):
        error = own.refused(400, 'POST', path, body)
        assert (error['field'], error.get('value')) == (
            'hosts or group', value)
    for group in ('nobody', 'p-empty'):
        assert own.refused(404, 'POST', path, {'group': group})
    assert own.refused(404, 'GET', path + '/x')


@pytest.fixture(scope='module')
def measured():
    """Three times of one pair, the newest slowest, and one of another."""
    found = service.Service()
    pairs = found.rooms.state.rates
    for at_s, rate_bps, rtt_s in ((900, 5e8, 1e-4), (950, 6e8, 4e-4),
                                  (960, 1e8, 2e-4)):
        pairs.add(made.measurement('h1', 'h0', rate_bps, rtt_s=rtt_s), at_s)
    pairs.add(made.measurement('h2', 'h0', 3e8), 980)
    yield found
    found.rooms.database.dispose()


@pytest.mark.parametrize('query, pair, other', [
    ('rate?statistic=latest', 1e8, 3e8), ('rate?statistic=median', 5e8, 3e8),
    ('rate?statistic=least', 1e8, 3e8), ('rate?statistic=most', 6e8, 3e8),
    ('rate?statistic=range', 5e8, 0.0), ('latency', 2e-4, None),
    ('latency?statistic=most', 4e-4, None),
    ('rate?statistic=latest&at=955', 6e8, None),
    ('rate?statistic=latest&at=950', 6e8, None),
    ('rate?statistic=latest&at=0', None, None)])
def test_matrices(measured, query, pair, other):
    """Row the sender, column the receiver."""
    found = measured.get('/v1/matrices/' + query)
    is_rate = query.startswith('rate')
    assert (found['kind'], found['unit']) == (
        ('rate', 'bit/s') if is_rate else ('latency', 's'))
    assert found['hosts'] == ['h0', 'h1', 'h2']
    values = found['values']
    assert (values[1][0], values[2][0]) == (pair, other)
    assert values[0][1] is values[0][2] is values[1][2] is None


def test_matrices_of_some_hosts(measured):
    found = measured.get('/v1/matrices/rate?hosts=h2,h0&statistic=most')
    assert found['hosts'] == ['h2', 'h0']
    assert found['values'][0][1] == 3e8 and found['values'][1][0] is None
    assert found['ages_s'][0][1] == 20.0
    error = measured.refused(400, 'GET', '/v1/matrices/rate?hosts=h0,h9')
    assert (error['field'], error['value']) == ('hosts', 'h9')
    # So many may be asked for at once.
    for n, limit in ((512, 'measured'), (513, 'at most 512')):
        names = ','.join(f'x{i}' for i in range(n))
        assert limit in measured.refused(
            400, 'GET', f'/v1/matrices/rate?hosts={names}')['limit']


def test_the_constant_component_is_fitted_once(measured):
    path = '/v1/matrices/rate'
    fitted = measured.get(path)
    assert fitted['statistic'] == 'constant'
    assert fitted['values'][2][0] == pytest.approx(3e8, rel=0.5)
    measured.rooms.state.rates.refresh(measured.clock())
    known = measured.get(path)
    rates = measured.rooms.state.rates.known.component.rates
    assert {known['values'][1][0], known['values'][2][0]} == set(rates)
    # Of another time it is fitted to what was known then.
    then = measured.get(path + '?at=900')
    assert then['values'][1][0] == pytest.approx(5e8)


@pytest.mark.parametrize('path, field', [
    ('speed', 'kind'), ('rate?statistic=mean', 'statistic'),
    ('latency?statistic=constant', 'statistic')])
def test_matrices_that_are_none(measured, path, field):
    assert measured.refused(400, 'GET', '/v1/matrices/' + path)[
        'field'] == field
    assert measured.refused(400, 'GET', '/v1/matrices/rate?at=-1')


def test_performers(measured, api):
    assert api.get('/v1/performers') == {
        'estimator': None, 'noise': None, 'trust': None, 'errors': {},
        'hosts': []}
    measured.rooms.state.rates.refresh(measured.clock())
    component = measured.rooms.state.rates.known.component
    found = measured.get('/v1/performers')
    assert found['estimator'] == str(component.estimator)
    assert (found['noise'], found['trust']) == (component.noise,
                                                str(component.trust))
    assert {one['host'] for one in found['hosts']} == {'h0', 'h1', 'h2'}
    assert all(isinstance(one['reasons'], list) for one in found['hosts'])
    # What nobody measured of a host has no number.
    assert None in {value for one in found['hosts']
                    for value in one.values() if not isinstance(value, list)}


def test_a_matrix_of_nothing_measured(own):
    for kind in 'rate', 'latency':
        found = own.get(f'/v1/matrices/{kind}')
        assert (found['hosts'], found['values']) == ([], [])
