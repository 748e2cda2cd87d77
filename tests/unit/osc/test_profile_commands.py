# SPDX-License-Identifier: Apache-2.0

"""``virtco profile …`` and ``virtco app …``."""

import pytest

from tests.unit.osc import controller
from virtco.osc import profile_commands as profile

PROFILE = {'group_name': 'g', 'n_vms': 3, 'n_hours': 5, 'size_bytes': 2e9,
           'pattern': '', 'next_hour': {
               'size_bytes': 1e9, 'method': 'week', 'error_fraction': 0.25},
           'pairs': [
               {'src': 0, 'dst': 1, 'size_bytes': 7.0, 'is_seen': True,
                'hours': [], 'next_hour': {
                    'size_bytes': 3.0, 'method': 'day',
                    'error_fraction': 0.5}},
               {'src': 1, 'dst': 0, 'size_bytes': 4.0, 'is_seen': False,
                'hours': [], 'next_hour': None}]}


def _shown(**values):
    one = controller.Controller(**{'GET /v1/profiles/g': PROFILE | values})
    found, told = controller.rows(profile.ShowProfile, one, 'g', '--project',
                                  'p')
    assert one.asked[0][1] == '/v1/profiles/g?project_id=p'
    return found, told.splitlines()


def test_what_pairs_sent_and_will_send():
    found, told = _shown()
    assert [(one['src'], one['dst'], one['size_bytes'], one['next_bytes'],
             one['error'], one['method'], one['is_seen'])
            for one in found] == [(0, 1, 7.0, 3.0, 0.5, 'day', True),
                                  (1, 0, 4.0, None, None, None, False)]
    assert told == ['Group g of 3 VMs: 2 GB in 5 hours',
                    'Next hour: 1 GB by week, error 25%',
                    '1 pairs share a host: nobody counts them']


@pytest.mark.parametrize(('values', 'line'), [
    ({'pattern': 'ring'}, 'Matrix: ring'),
    ({'next_hour': PROFILE['next_hour'] | {'error_fraction': None}},
     'Next hour: 1 GB by week, error unknown yet'),
    ({'next_hour': PROFILE['next_hour'] | {'error_fraction': 0}},
     'Next hour: 1 GB by week, error 0%')])
def test_what_is_known_of_a_group(values, line):
    told = _shown(**values)[1]
    assert line in told and len(told) == 3 + ('pattern' in values)


def test_pairs_that_are_all_seen():
    assert len(_shown(pairs=PROFILE['pairs'][:1])[1]) == 2


def test_profiles_and_applications_are_listed():
    one = controller.Controller(**{
        'GET /v1/profiles': {'profiles': [{'group_name': 'g', 'n_vms': 3}]},
        'GET /v1/apps': {'apps': [{'app': 'a', 'n_launches': 2}]}})
    (found,), _ = controller.rows(profile.ListProfiles, one, '--project', 'p')
    assert (found['group_name'], found['n_vms']) == ('g', 3)
    (found,), _ = controller.rows(profile.ListApps, one)
    assert (found['app'], found['n_launches']) == ('a', 2)
    assert [path for _, path, _ in one.asked] == [
        '/v1/profiles?project_id=p', '/v1/apps']


def test_an_application_is_shown_and_forgotten():
    one = controller.Controller(**{
        'GET /v1/apps/a': {'launches': [{}, {}, {}], 'tm': [[0, 1, 5]]},
        'DELETE /v1/apps/a': None})
    found, _ = controller.rows(profile.ShowApp, one, 'a', '--vms', '4',
                               '--project', 'p')
    assert (len(found['launches']), found['tm']) == (3, '[[0,1,5]]')
    controller.run(profile.DeleteApp, one, 'a')
    assert [ask[:2] for ask in one.asked] == [
        ('GET', '/v1/apps/a?n_vms=4&project_id=p'), ('DELETE', '/v1/apps/a')]
