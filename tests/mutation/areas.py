# SPDX-License-Identifier: Apache-2.0

"""Which unit tests belong to a module: those of its area, nearest first."""

import ast
import functools
import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).parents[2]
UNIT = ROOT / 'tests' / 'unit'
PRODUCT = ('virtco', 'edge_module', 'nova_filters', 'lab/virtco_lab',
           'tenant/virtco_tenant')
#: Areas whose tests do not lie below the name of the package.
_ELSEWHERE = {
    'edge_module/probe': ('probe',),
    'edge_module': ('edge',),
    'nova_filters': ('nova_filters',),
    'lab/virtco_lab/placement': ('lab/placement',),
    'lab/virtco_lab/sim': ('lab/sim',),
    'lab/virtco_lab/emulation': ('lab/emulation',),
    'lab/virtco_lab/cloud': ('lab/cloud',),
    'lab/virtco_lab/services': ('lab/services',),
    'virtco/model': ('scheduling', 'solver', 'topology', 'hints', 'place'),
    'lab/virtco_lab/cmd': ('lab',),
    'lab/virtco_lab': ('lab',),
    'tenant/virtco_tenant': ('cast', 'hintkit'),
    'tenant/virtco_tenant/cast': ('cast',),
    'tenant/virtco_tenant/hintkit': ('hintkit',),
    'virtco/fluid': ('lab/sim', 'scheduling'),
    'virtco/cmd': ('cmd', 'osc'),
    'virtco/client': ('osc',),
    'virtco/watcher': ('../watcher',),
}
#: Tests of Nova as a program, which import Nova, of modules that nothing else
#: imports.
_WITH_NOVA = {
    f'lab/virtco_lab/emulation/nova_{stem}.py': UNIT.parent / 'functional'
    / 'nova' / 'test_stack_program.py' for stem in ('cloud', 'stack')}


def modules() -> list[str]:
    """List the product's modules, relative to the root.

    Modules of Watcher's strategy are listed where Watcher is installed, as in
    the environment of ``tox -e watcher``; elsewhere nothing imports them.
    Alembic loads its scripts by their paths, so that no mutant of one would
    run.
    """
    has_watcher = importlib.util.find_spec('watcher') is not None
    return sorted(
        path.relative_to(ROOT).as_posix() for top in PRODUCT
        for path in (ROOT / top).rglob('*.py')
        if 'alembic' not in path.parts and path.stat().st_size > 100
        and (has_watcher or path.parent.name != 'watcher'))


def area(path: str) -> str:
    """Name the area of a module: a package, or the module itself."""
    parts = path.split('/')
    if len(parts) == 2:
        return parts[0] if parts[0] != 'virtco' else path
    if parts[0] in ('lab', 'tenant'):
        return '/'.join(parts[:min(3, len(parts) - 1)])
    if parts[:2] == ['edge_module', 'probe']:
        return 'edge_module/probe'
    return parts[0] if parts[0] != 'virtco' else '/'.join(parts[:2])


def module_name(path: str) -> str:
    """Name a module as its importers do."""
    return path.removesuffix('.py').removesuffix('/__init__').removeprefix(
        'lab/').removeprefix('tenant/').replace('/', '.')


def tests(path: str) -> list[str]:
    """List the files of unit tests of a module's area, nearest first.

    Nearest are those that import the module, of these those with its name,
    then those with the name of its package; then come all others of the area.
    """
    name = module_name(path)
    own = area(path)
    folders = _ELSEWHERE.get(own, (own.partition('/')[2],))
    found = {file for folder in folders
             for file in (UNIT / folder).resolve().rglob('test_*.py')}
    importing = {file for file in _files() if name in _imports(file)}
    if own.endswith('.py'):
        found = importing
    found |= {file for file in UNIT.glob('test_*.py') if file in importing}
    *_, package, stem = pathlib.Path(path).with_suffix('').parts
    order = sorted(found, key=lambda file: (
        file not in importing, stem not in file.stem,
        package not in file.stem, _cost(file), file))
    if path in _WITH_NOVA:
        order.insert(0, _WITH_NOVA[path])
    return [file.relative_to(ROOT).as_posix() for file in order]


def _cost(file: pathlib.Path) -> tuple[bool, int]:
    """Rank stories of faults behind all else: one takes a minute."""
    return (any(name.startswith('tests.faults') for name in _imports(file)),
            file.stat().st_size)


@functools.cache
def _files() -> tuple[pathlib.Path, ...]:
    return tuple(sorted(UNIT.rglob('test_*.py')))


@functools.cache
def _imports(file: pathlib.Path) -> frozenset[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {f'{node.module}.{alias.name}' for alias in node.names}
            found.add(node.module or '')
    return frozenset(found)
