# SPDX-License-Identifier: Apache-2.0

"""The rules of the house that an import statement can break."""

import ast
import pathlib
import subprocess
import sys

import pytest

from tests import sources

ROOT = pathlib.Path(__file__).parents[2]

# Standard-library modules that read a clock, draw randomness from the
# machine, or touch files, sockets, processes and threads.
IMPURE = {
    'asyncio', 'http', 'io', 'multiprocessing', 'os', 'requests', 'select',
    'shutil', 'socket', 'sqlite3', 'subprocess', 'threading', 'time',
    'urllib',
}
IMPURE_PACKAGES = {
    'alembic', 'falcon', 'keystoneauth1', 'oslo_config', 'oslo_db',
    'oslo_log', 'oslo_messaging', 'ovs', 'ovsdbapp', 'pyroute2',
    'sqlalchemy', 'waitress',
}
PURE = [
    'virtco/units.py', 'virtco/problems.py', 'virtco/ring_and_tree.py',
    'virtco/hints.py',
    'virtco/hint_encoding.py',
    'virtco/hint_matrix.py', 'virtco/hint_patterns.py',
    'tenant/virtco_tenant/hintkit/figures.py',
    'tenant/virtco_tenant/hintkit/made.py',
    'tenant/virtco_tenant/hintkit/screen.py', 'virtco/model',
    'virtco/fluid', 'virtco/scheduling', 'virtco/table', 'virtco/topology',
    'virtco/profiles', 'virtco/wire',
    'virtco/measure', 'virtco/advise',
    'edge_module/tcplan',
]
# The planner takes a clock as an argument; monotonic is only its default.
ALLOWED = {('virtco/solver/planner.py', 'time'),
           ('virtco/solver/together.py', 'time')}

# Rooms and modules of the planner; each imports only what stands before it.
SOLVER_ORDER = [
    'budget', 'model', 'bounds', 'starts', 'moves',
    'partition', 'judging', 'enumeration_kernel', 'smallgroup',
    'stages', 'search', 'choices', 'residual', 'planner', 'together',
    'counterfactuals', 'delays', 'reevaluation',
]

# Packages and modules of virtco; each imports only what stands before it.
ORDER = [
    'compiled', 'exception', 'problems', 'units', 'metrics', 'clock',
    'version', 'ring_and_tree', 'hint_patterns', 'screenshot', 'systemd',
    'decoding', 'model', 'periodic', 'wire', 'configuration', 'profiles',
    'hint_encoding', 'hint_matrix', 'scheduling', 'own_policies', 'topology',
    'db', 'client',
    'startup', 'fluid', 'table', 'conf', 'hints', 'solver', 'measure',
    'leadership', 'watcher', 'advise', 'state', 'objects', 'decide', 'follow',
    'place', 'distribute', 'selftest', 'app', 'api', 'cmd', 'osc',
]

# What the edge module may import of virtco.
OF_EDGE = (
    'virtco.wire', 'virtco.units', 'virtco.exception', 'virtco.decoding',
    # Leaves by which every daemon starts: its options, and what systemd hears.
    'virtco.configuration', 'virtco.systemd')


def _sources(names):
    for name in names:
        path = ROOT / name
        yield from sorted(path.rglob('*.py')) if path.is_dir() else [path]


def _imports(path):
    for node in sources.read(path).imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif node.level == 0:
            yield from (f'{node.module}.{alias.name}'
                        for alias in node.names)


@pytest.mark.parametrize(
    'path', [str(path.relative_to(ROOT))
             for path in _sources(PURE + ['virtco/solver'])])
def test_pure_core_does_no_io(path):
    for name in _imports(ROOT / path):
        top = name.split('.')[0]
        if (path, top) in ALLOWED:
            continue
        assert top not in IMPURE | IMPURE_PACKAGES, f'{path}: {name}'


@pytest.mark.parametrize('path', [
    str(path.relative_to(ROOT)) for path in _sources(PURE)])
def test_pure_core_does_not_know_its_callers(path):
    callers = ('virtco.api', 'virtco.app', 'virtco.place', 'virtco.state',
               'virtco.objects', 'virtco.decide', 'virtco.follow', 'virtco.db',
               'virtco.client', 'virtco_lab',
               'nova_filters', 'edge_module.agent')
    for name in _imports(ROOT / path):
        assert not name.startswith(callers), f'{path}: {name}'


@pytest.mark.parametrize('folder, later', [
    ('virtco', ('virtco_tenant', 'virtco_lab')),
    ('nova_filters', ('virtco_tenant', 'virtco_lab')),
    ('edge_module', ('virtco_tenant', 'virtco_lab')),
    ('tenant', ('virtco_lab',))])
def test_a_distribution_imports_none_that_stands_on_it(folder, later):
    paths = list(_sources([folder]))
    assert len(paths) > 10
    assert [f'{path}: {name}' for path in paths for name in _imports(path)
            if name.startswith(later)] == []


def _loaded_by(statement):
    code = f'import sys; {statement}; print(*sorted(sys.modules))'
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, check=True,
                          capture_output=True, text=True)
    return {name.split('.')[0] for name in done.stdout.split()}


@pytest.mark.parametrize('path', [
    str(path.relative_to(ROOT)) for path in _sources(['edge_module'])])
def test_the_edge_knows_the_contract_alone(path):
    for name in _imports(ROOT / path):
        assert not name.startswith(('virtco.', 'nova_filters')) or any(
            f'{name}.'.startswith(f'{one}.') for one in OF_EDGE), (
                f'{path}: {name}')


def test_edge_agent_stays_light():
    heavy = {'eventlet', 'oslo_messaging', 'oslo_service', 'numpy', 'scipy',
             'numba', 'sqlalchemy', 'falcon', 'nova'}
    # OpenStack's logging loads eventlet by itself up to 2026.1.
    found = (_loaded_by('import edge_module.agent')
             - _loaded_by('import oslo_log.log'))
    assert not found & heavy


def test_one_module_knows_novas_database():
    found = {path.relative_to(ROOT).as_posix()
             for path in _sources(['nova_filters', 'virtco', 'edge_module'])
             for name in _imports(path) if name.startswith('nova.db')}
    assert found == {'nova_filters/metadata_query.py'}


def _package(path):
    return path.relative_to(ROOT / 'virtco').with_suffix('').parts[0]


def test_packages_import_downwards_only():
    """So there is no circle between them, either."""
    found = {_package(path) for path in _sources(['virtco'])}
    assert found - {'__init__'} == set(ORDER)
    upwards = []
    for path in _sources(['virtco']):
        own = _package(path)
        if path == ROOT / 'virtco/__init__.py':
            continue
        for name in _imports(path):
            top, _, other = name.partition('.')
            other = other.partition('.')[0]
            if (top == 'virtco' and other in ORDER
                    and ORDER.index(other) > ORDER.index(own)):
                upwards.append(f'{path.relative_to(ROOT)}: {name}')
    assert not upwards


def _room(name):
    """The planner's room that a module's name or an import is of."""
    parts = name.split('.')
    return parts[2] if parts[:2] == ['virtco', 'solver'] and len(
        parts) > 2 else None


def test_the_planners_rooms_import_downwards_only():
    found = {path.stem for path in (ROOT / 'virtco/solver').iterdir()
             if path.suffix == '.py' or (path / '__init__.py').exists()}
    assert found - {'__init__'} == set(SOLVER_ORDER)
    upwards = []
    for path in _sources(['virtco/solver']):
        own = _room('.'.join(path.relative_to(ROOT).with_suffix('').parts))
        if own == '__init__':
            continue
        for name in _imports(path):
            other = _room(name.replace('cython.cimports.', ''))
            if other and SOLVER_ORDER.index(other) > SOLVER_ORDER.index(own):
                upwards.append(f'{own} imports {name}')
    assert not upwards
