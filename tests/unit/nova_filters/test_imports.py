# SPDX-License-Identifier: Apache-2.0

"""Nothing heavy gets into Nova's process, and nothing happens at import."""

import ast
from importlib import metadata
import json
import pathlib
import subprocess
import sys

from oslo_config import cfg
from packaging import requirements
import pytest

from nova_filters import plugin_options as virtco_conf
from tests import sources

ROOT = pathlib.Path(__file__).parents[3]

HEAVY = {'numpy', 'scipy', 'numba', 'pulp', 'matplotlib', 'rich', 'falcon',
         'alembic', 'sqlalchemy', 'eventlet', 'pyroute2', 'msgspec',
         'oslo_db', 'waitress', 'prometheus_client'}
OWN = {'virtco', 'virtco.exception', 'virtco.hints', 'virtco.hint_encoding',
       'virtco.hint_matrix', 'virtco.hint_patterns', 'virtco.units',
       'virtco.model', 'virtco.model.coflow', 'virtco.model.matrix'}
SCRIPT = '''
import json, os, sys
os.environ['OS_NOVA_DISABLE_EVENTLET_PATCHING'] = '1'
{before}
before = set(sys.modules)
{imports}
print(json.dumps(sorted(set(sys.modules) - before)))
'''


def new_modules(imports, before=''):
    done = subprocess.run(
        [sys.executable, '-W', 'ignore', '-c',
         SCRIPT.format(imports=imports, before=before)],
        capture_output=True, text=True, timeout=120, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize('module', [
    'plugin_options', 'controller_connection', 'planclient', 'request',
    'recent', 'sender'])
def test_what_does_not_need_nova(module):
    # The logging of OpenStack 2026.1 and before loads eventlet by itself.
    found = new_modules(f'import nova_filters.{module}',
                        'import oslo_log.log')
    assert not HEAVY & {name.split('.')[0] for name in found}
    assert not any(name == 'nova' or name.startswith('nova.')
                   for name in found)
    assert {name for name in found if name.split('.')[0] == 'virtco'} <= OWN


def test_what_the_scheduler_loads():
    """Beyond what nova-scheduler has loaded by itself."""
    found = new_modules(
        'import nova_filters.coflow_filter, nova_filters.coflow_weigher, '
        'nova_filters.metadata_query, nova_filters.notifier',
        'import nova.scheduler.manager, nova.scheduler.host_manager')
    assert not HEAVY & {name.split('.')[0] for name in found}
    assert {name for name in found if name.split('.')[0] == 'virtco'} <= OWN


def test_of_virtco_they_import_errors_units_and_the_parsing_of_hints():
    found = {name for path in (ROOT / 'nova_filters').glob('*.py')
             for statement in sources.read(path).imports
             for name in _modules(statement)}
    assert found == {'virtco.exception', 'virtco.hints', 'virtco.units'}


def _modules(statement):
    if isinstance(statement, ast.Import):
        return {one.name for one in statement.names
                if one.name.startswith('virtco')}
    if (statement.module or '').split('.')[0] != 'virtco':
        return set()
    return {f'{statement.module}.{one.name}' for one in statement.names}


def test_nova_itself_requires_what_they_require():
    """So they add no library to Nova's process."""
    own = {requirements.Requirement(line).name for line in (
        ROOT / 'requirements.txt').read_text().splitlines()
        if line and not line.startswith('#')}
    assert own <= {requirements.Requirement(line).name.lower()
                   for line in metadata.requires('nova')}


def test_no_option_is_registered_at_import():
    new_modules('''
import nova_filters.coflow_filter, nova_filters.coflow_weigher
import nova_filters.notifier, nova.conf
assert 'virtco' not in nova.conf.CONF
nova_filters.coflow_weigher.CoflowWeigher()
nova_filters.coflow_weigher.CoflowWeigher()
nova_filters.coflow_filter.CoflowFilter()
assert nova.conf.CONF.virtco.timeout_ms == 800
''')


@pytest.mark.parametrize('name, value', [
    ('on_bad_hint', 'explode'), ('timeout_ms', 0), ('timeout_ms', 'soon'),
    ('controller_url', 'ftp://h'), ('weight_multiplier', -1),
    ('read_metadata', 'maybe')])
def test_options_are_checked(name, value):
    conf = cfg.ConfigOpts()
    virtco_conf.register_opts(conf)
    conf([])
    with pytest.raises(ValueError):
        conf.set_override(name, value, group='virtco')


def test_every_option_says_what_it_means():
    for opt in virtco_conf.OPTS:
        assert opt.help and len(opt.help.strip()) > 60, opt.name
