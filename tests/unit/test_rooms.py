# SPDX-License-Identifier: Apache-2.0

"""Rooms: what is pure, what is private, and who knows whom."""

import pytest

from tests import sources
from tests.unit import test_layers as layers

ROOT, PURE = layers.ROOT, layers.PURE
_sources, _imports, _loaded_by = (layers._sources, layers._imports,
                                  layers._loaded_by)

ROOMS = {'place', 'state', 'objects', 'decide', 'follow'}


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
    assert len(PURE_IN_ROOMS) > 30
    assert 'virtco.state.inflight' in PURE_IN_ROOMS
    assert 'virtco.state.state' not in PURE_IN_ROOMS


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
    """Only the API and the commands hold all rooms, and none but those that
    decide holds the state and the objects as a whole.
    """
    for path in _sources(['virtco']):
        parts = path.relative_to(ROOT / 'virtco').parts
        names = set(_imports(path))
        if parts[0] not in {'api', 'cmd'} and parts != ('app.py',):
            assert 'virtco.app' not in names, path
        if parts[0] in ROOMS:
            wholes = {f'virtco.{room}.{room}' for room in ROOMS} & names
            assert wholes <= {'virtco.state.state', 'virtco.objects.objects',
                              f'virtco.{parts[0]}.{parts[0]}'}
