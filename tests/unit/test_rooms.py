# SPDX-License-Identifier: Apache-2.0

"""Rooms: what is pure, what is private, and who knows whom."""

import pytest

from tests import sources
from tests.unit import test_layers as layers

ROOT, PURE = layers.ROOT, layers.PURE
_sources, _imports, _loaded_by = (layers._sources, layers._imports,
                                  layers._loaded_by)

ROOMS = {'ask', 'know', 'decide', 'follow'}


def _says_it_is_pure(path):
    text = sources.read(path).docstring
    return 'Pure.' in text or 'Pure:' in text


# Those that say so beside others that are not.
PURE_IN_ROOMS = sorted(
    '.'.join(path.relative_to(ROOT).with_suffix('').parts)
    for path in set(_sources(['virtco', 'edge_module'])) - set(
        _sources([*PURE, 'virtco/solver', 'virtco/osc']))
    if _says_it_is_pure(path))


def test_modules_that_say_they_are_pure_are_found():
    assert len(PURE_IN_ROOMS) > 40
    assert 'virtco.know.inflight' in PURE_IN_ROOMS
    assert 'virtco.know.room' not in PURE_IN_ROOMS


@pytest.mark.parametrize('name', PURE_IN_ROOMS + [
    'virtco.model.states', 'virtco.scheduling', 'virtco.table.layouts'])
def test_pure_modules_load_no_database(name):
    assert not _loaded_by(f'import {name}') & {
        'alembic', 'falcon', 'oslo_config', 'oslo_db', 'sqlalchemy',
        'requests'}


@pytest.mark.parametrize('name', PURE_IN_ROOMS)
def test_pure_modules_import_nothing_impure(name):
    path = ROOT / f'{name.replace(".", "/")}.py'
    for imported in _imports(path):
        top = imported.partition('.')[0]
        assert top not in layers.IMPURE | layers.IMPURE_PACKAGES, imported


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
