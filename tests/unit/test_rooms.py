# SPDX-License-Identifier: Apache-2.0

"""Rooms: what is pure, what is private, and who knows whom."""

import pytest

from tests import sources
from tests.unit import test_layers as layers

ROOT, PURE = layers.ROOT, layers.PURE
_sources, _imports, _loaded_by = (layers._sources, layers._imports,
                                  layers._loaded_by)

ROOMS = {'ask', 'know', 'decide', 'follow'}
# Pure, although they stand beside what is not.
PURE_IN_ROOMS = [
    'virtco.ask.answer', 'virtco.ask.problem', 'virtco.ask.request',
    'virtco.ask.wishes',
    'virtco.cast.blocks', 'virtco.cast.clusters', 'virtco.cast.demand',
    'virtco.cast.peers',
    'virtco.db.codec', 'virtco.decoding',
    'virtco.decide.lateness', 'virtco.decide.policies',
    'virtco.decide.promises', 'virtco.decide.senders',
    'virtco.distribute.deltas', 'virtco.distribute.messages',
    'virtco.distribute.session', 'virtco.distribute.tickets',
    'virtco.decide.waiting',
    'virtco.follow.comparison',
    'virtco.follow.notifications', 'virtco.hintkit.collectives',
    'virtco.hintkit.parallel',
    'virtco.know.addresses', 'virtco.know.byte_counters',
    'virtco.know.debts', 'virtco.know.host_state', 'virtco.know.inflight',
    'virtco.know.groups', 'virtco.know.host_uplinks',
    'virtco.know.pair_counters',
    'virtco.know.peer_counters',
    'virtco.know.progress', 'virtco.know.rules',
    'virtco.know.route', 'virtco.know.silence', 'virtco.know.snapshot',
    'virtco.know.summary',
    'virtco.know.sending', 'virtco.know.towards',
    'virtco.know.uplinks', 'virtco.leadership.agreement',
    'virtco.lab.cloud.configs',
    'virtco.lab.sim.borrowing']


def _says_it_is_pure(path):
    text = sources.read(path).docstring
    return 'Pure.' in text or 'Pure:' in text


def test_who_calls_itself_pure_is_known_here():
    found = {path.relative_to(ROOT).with_suffix('').as_posix().replace(
        '/', '.') for path in _sources(['virtco']) if _says_it_is_pure(path)}
    core = {name.removesuffix('.py').replace('/', '.')
            for name in [*PURE, 'virtco/solver', 'virtco/osc']}
    assert {name for name in found if not any(
        name == some or name.startswith(f'{some}.')
        for some in core)} == set(PURE_IN_ROOMS)


@pytest.mark.parametrize('name', PURE_IN_ROOMS + [
    'virtco.model.states', 'virtco.scheduling', 'virtco.table.layouts'])
def test_pure_modules_load_no_database(name):
    assert not _loaded_by(f'import {name}') & {
        'alembic', 'falcon', 'oslo_config', 'oslo_db', 'sqlalchemy',
        'requests'}


@pytest.mark.parametrize('room', sorted(ROOMS))
def test_a_room_keeps_what_is_private(room):
    """Nobody outside reaches for a lock or for what it protects."""
    for path in _sources(['virtco', 'benchmarks']):
        if path.parent == ROOT / 'virtco' / room:
            continue
        assert not sources.read(path).reaches & PRIVATE, path


PRIVATE = {'lock', '_lock', '_coflows', '_groups', '_hosts', '_ended',
           '_debts', '_addresses', '_changed', '_numbered'}


def test_nobody_holds_the_whole():
    """The rooms do not know each other's doors but know's, and only the API
    and the commands hold all of them. The distributor is a door like the API.
    """
    for path in _sources(['virtco']):
        parts = path.relative_to(ROOT / 'virtco').parts
        names = set(_imports(path))
        if parts[0] not in {'api', 'cmd'} and parts != ('app.py',):
            assert 'virtco.app' not in names, path
        if parts[0] in ROOMS:
            doors = {name for name in names if name.endswith('.room')}
            assert doors <= {'virtco.know.room', f'virtco.{parts[0]}.room'}
            assert not any(name.startswith('virtco.api') for name in names)
