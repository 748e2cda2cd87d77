# SPDX-License-Identifier: Apache-2.0

"""What each distribution asks for is what its code imports, and each supported
release of OpenStack allows it.
"""

import ast
import configparser
import pathlib
import re
import sys
import tomllib

from packaging import requirements
from packaging import utils
import pytest

from tests import sources

ROOT = pathlib.Path(__file__).parents[2]
PINS = sorted((ROOT / 'tests' / 'fixtures' / 'constraints').glob('*.txt'))
OWN = ('virtco', 'nova_filters', 'edge_module', 'virtco_tenant',
       'virtco_lab')
#: Distributions that are not called as their modules are.
NAMED = {'placement': 'openstack-placement', 'psycopg2': 'psycopg2-binary',
         'openstack': 'openstacksdk', 'watcher': 'python-watcher',
         'yaml': 'PyYAML'}
#: What each extra serves, with all that these modules import.
SERVED = {
    'controller': ['virtco.cmd.api', 'virtco.cmd.controller',
                   'virtco.cmd.distributor', 'virtco.cmd.manage',
                   'virtco.cmd.scheduler',
                   'virtco.cmd.status', 'virtco.conf.opts',
                   'virtco.api.policies'],
    'edge': ['edge_module.cmd', 'edge_module.edge_options'],
    'osc': ['virtco.osc.shell', 'virtco.osc.plugin', 'virtco.osc.top',
            'virtco.osc.coflow_commands', 'virtco.osc.operator_commands',
            'virtco.osc.topology_commands'],
    'sdk': ['virtco.client.openstack_sdk'],
    'plot': ['virtco.topology.plot'],
    'tenant': ['virtco_tenant.hintkit.program'],
    'tenant[cast]': ['virtco_tenant.cast.command'],
    'lab': ['virtco_lab.cmd.sim', 'virtco_lab.cmd.emulate'],
    'lab[report]': ['virtco_lab.cmd.report'],
    'lab[nova]': ['virtco_lab.emulation.nova_stack'],
    'watcher': ['virtco.watcher.goal', 'virtco.watcher.strategy'],
}
PLUGINS = ['nova_filters.coflow_filter', 'nova_filters.coflow_weigher',
           'nova_filters.notifier', 'nova_filters.plugin_options']
#: Installed wherever the plug-ins are, in the version that Nova wants.
OF_NOVA = {'nova', 'oslo-config', 'oslo-log', 'oslo-messaging',
           'oslo-serialization', 'sqlalchemy'}
#: Nova's own tests import these, which the emulated Nova is made of.
OF_NOVAS_TESTS = {'oslotest', 'testscenarios', 'wsgi-intercept'}


def _read():
    """Requirements of every Nova, and those of each extra, by name.

    Those of another distribution's extra include what comes without one.
    """
    config = configparser.ConfigParser()
    config.read(ROOT / 'setup.cfg')
    extras = {name: _parse(text) for name, text in config['extras'].items()}
    for name in ('tenant', 'lab'):
        project = tomllib.loads(
            (ROOT / name / 'pyproject.toml').read_text())['project']
        extras[name] = {
            one: wanted for one, wanted in _parse(
                '\n'.join(project['dependencies'])).items()
            if not one.startswith('virtco')}
        for extra, lines in project['optional-dependencies'].items():
            extras[f'{name}[{extra}]'] = extras[name] | _parse(
                '\n'.join(lines))
    return _parse((ROOT / 'requirements.txt').read_text()), extras


def _parse(text):
    found = [requirements.Requirement(line) for line in text.splitlines()
             if line.strip() and not line.startswith('#')]
    return {utils.canonicalize_name(one.name): one for one in found}


BASE, EXTRAS = _read()


def _names(path):
    for node in sources.read(path).imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            yield node.module
            yield from (f'{node.module}.{alias.name}'
                        for alias in node.names)


def _source(module):
    top = {'virtco_tenant': 'tenant', 'virtco_lab': 'lab'}.get(
        module.partition('.')[0], '')
    path = ROOT.joinpath(top, *module.split('.'))
    for found in (path.with_suffix('.py'), path / '__init__.py'):
        if found.exists():
            return found
    return None


def _of_others(names):
    tops = {NAMED.get(top, top) for top in (
        name.partition('.')[0] for name in names)}
    return {utils.canonicalize_name(top) for top in tops
            - set(sys.stdlib_module_names) - {*OWN, 'tests', 'benchmarks'}}


def imported_by(modules):
    """Distributions that these modules import, however late or indirectly."""
    todo, seen = list(modules), set()
    while todo:
        module = todo.pop()
        if module in seen:
            continue
        seen.add(module)
        if module.startswith(OWN):
            todo.append(module.rpartition('.')[0] or module)
            path = _source(module)
            todo += _names(path) if path else ()
    return _of_others(seen)


#: Loaded with the service that they drive, from extras of their own.
DRIVERS = {'controller': {*EXTRAS['redis'], *EXTRAS['postgresql']}}


def test_every_program_is_served_by_the_extra_that_it_names():
    programs = re.findall(r"\(\s*run,\s+'[\w-]+', '([\w.]+)', '(\w+)'\)",
                          (ROOT / 'virtco/cmd/entry.py').read_text())
    assert len(programs) > 5
    for module, extra in programs:
        assert module in SERVED[extra]


def test_the_plug_ins_import_what_is_required():
    assert imported_by(PLUGINS) - OF_NOVA == set(BASE)


@pytest.mark.parametrize('extra', SERVED)
def test_an_extra_is_what_its_programs_import(extra):
    modules = {*SERVED[extra.partition('[')[0]], *SERVED[extra]}
    imports = imported_by(modules) - DRIVERS.get(extra, set())
    declared = set(EXTRAS[extra])
    assert imports <= declared | set(BASE)
    unused = declared - imports
    if extra == 'lab[nova]':
        unused -= OF_NOVAS_TESTS
    assert not unused


def test_what_tests_and_benchmarks_import_is_declared():
    imports = {name for folder in ('tests', 'benchmarks')
               for path in (ROOT / folder).rglob('*.py')
               for name in _names(path)}
    assert _of_others(imports) <= set(BASE).union(*EXTRAS.values())


def _pins(path):
    pins = {}
    for line in path.read_text().splitlines():
        if not line.startswith('#'):
            pin = requirements.Requirement(line.replace('===', '=='))
            if pin.marker is None or pin.marker.evaluate(
                    {'python_version': '3.11'}):
                specifier, = pin.specifier
                pins[utils.canonicalize_name(pin.name)] = specifier.version
    return pins


@pytest.mark.parametrize('path', PINS, ids=lambda path: path.stem)
@pytest.mark.parametrize('extra', ['controller', 'edge', 'osc', 'sdk',
                                   'tenant', 'lab'])
def test_an_extra_is_allowed_by_the_pins(path, extra):
    pins = _pins(path)
    wanted = {**BASE, **EXTRAS[extra]}
    assert len(pins.keys() & wanted.keys()) > 1
    assert [f'{one}, pinned {pins[name]}' for name, one in wanted.items()
            if name in pins and not one.specifier.contains(
                pins[name], prereleases=True)] == []


def test_the_pins_are_there():
    assert [path.stem for path in PINS] == [
        '2025.1', '2025.2', '2026.1', 'master']
