# SPDX-License-Identifier: Apache-2.0

"""``virtco hint check``: the screen, the ready line, and what it warns of."""

import dataclasses
import json
import pathlib
import shlex
import subprocess
import sys
import tomllib
import types

from hypothesis import given
from hypothesis import strategies as st
import pytest

from tests.unit.hintkit import running
from tests.unit.osc import controller as controllers
from virtco import exception
from virtco import hints
from virtco.conf import limit_options as limits_conf
from virtco.osc import shell
from virtco.wire import host as host_wire
from virtco.wire import plan as plan_wire
from virtco_tenant.hintkit import commands
from virtco_tenant.hintkit import figures
from virtco_tenant.hintkit import program

ROOT = pathlib.Path(__file__).parents[3]
PAIR = '[[0, "5GB"], ["1GB", 0]]'


def facts(*argv, **kwargs):
    return json.loads(running.hint(*argv, '--format', 'json', **kwargs))


def ready(screen):
    """The options at the end of a screen, as a shell would pass them."""
    lines = screen.split('For openstack server create:\n')[1]
    return shlex.split(lines.replace('\\\n', ''))


def test_a_small_matrix_stands_there_as_numbers():
    screen = running.hint('check', PAIR, '--name', 'sort')
    assert screen.startswith('Hint sort: 2 VMs, 2 flows, 6 GB\n')
    assert 'Sizes in GB' in screen
    assert [line.split() for line in screen.splitlines()
            if line.startswith('    ')][1:3] == [['0', '.', '5'],
                                                 ['1', '1', '.']]
    assert 'at least 40 s: VM 0 sends 5 GB.' in ' '.join(screen.split())


def test_the_ready_line_is_read_by_the_controllers_parser():
    screen = running.hint('check', PAIR, '--name', "my job's")
    options = ready(screen)
    assert options[:4] == ['--min', '2', '--max', '2']
    values = dict(option.split('=', 1) for option in options[5::2])
    hint = hints.parse(values)
    assert hint.coflow_name == "my job's"
    assert hint == hints.parse({'virtco:coflow': "my job's",
                                'virtco:tm': PAIR})


@given(n=st.integers(1, 90), data=st.data())
def test_a_screen_has_80_columns(n, data):
    flows = data.draw(st.lists(st.tuples(
        st.integers(0, n - 1), st.integers(0, n - 1),
        st.floats(0, 1e13)), max_size=40))
    screen = running.hint(
        'check', json.dumps({'n': n, 'flows': flows}),
        '--vms', str(data.draw(st.integers(1, 1000))), '--all')
    for line in screen.split('For openstack')[0].splitlines():
        assert len(line) <= 80, line


def test_rows_that_look_alike_share_a_line():
    screen = running.hint('check', json.dumps(
        {'pattern': 'shuffle', 'senders': 20, 'receivers': 20,
         'size': '19GB'}))
    assert f'    0-19 |{" " * 20}{"@" * 20}|' in screen
    assert f'   20-39 |{" " * 40}|' in screen
    assert any(line.split() == ['0-19', '950', 'MB', '20', '0', 'B', '0']
               for line in screen.splitlines())


def test_many_vms_are_shown_in_blocks():
    screen = running.hint('check', '{"pattern": "ring", "n": 500, "size": 5}')
    assert 'block of 8 by 8 VMs' in screen
    assert ' 496-499 |' in screen


@pytest.mark.parametrize('text, vms, warning', [
    (PAIR, 1, 'The matrix has 2 rows, but there will be 1 VM: row 1 will'),
    (PAIR, 4, 'The matrix has 2 rows for 4 VMs: the hint of VMs 2 to 3'),
    ('[[0, "1MB", 0], ["1MB", 0, 0], [0, 0, 0]]', 3, 'VM 2 neither sends'),
    ('{"n": 10, "flows": [[8, 9, "5MB"]]}', 10,
     'VM 0, 1, 2, 3, 4, 5, 6, 7 neither sends'),
    ('{"n": 11, "flows": [[9, 10, "5MB"]]}', 11,
     'VM 0, 1, 2, 3, 4, 5, 6, 7 and 1 more neither sends'),
    ('[[0, 0], [0, 0]]', 2, 'No VM sends anything.'),
    ('[["3kB", "1MB"], [0, "4B"]]', 2,
     'Bytes of a VM to itself are ignored: VM 0 3 kB, VM 1 4 B.'),
    ('{"n": 2, "flows": [[0, 1, "5MB"], [1, 1, "4B"], [1, 1, "3B"]]}', 2,
     'Bytes of a VM to itself are ignored: VM 1 7 B.'),
    (json.dumps([['1MB'] * 5] * 5), 5, 'Bytes of a VM to itself are ignored: '
     'VM 0 1 MB, VM 1 1 MB, VM 2 1 MB, VM 3 1 MB, VM 4 1 MB.'),
    (json.dumps([['1MB'] * 7] * 7), 7, 'Bytes of a VM to itself are ignored: '
     'VM 0 1 MB, VM 1 1 MB, VM 2 1 MB, VM 3 1 MB, VM 4 1 MB and 2 more VMs.'),
    ('[{"name": "a", "tm": [[0, "1MB"], ["1MB", 0]]},'
     ' {"name": "b", "tm": [[0, "1MB"], [0, 0]], "dst_port": 5}]', 2,
     "Coflows 'a' and 'b' use the same pairs"),
])
def test_warnings(text, vms, warning):
    found = facts('check', text, '--vms', str(vms))['warnings']
    assert len(found) == 1 and found[0].startswith(warning)


@pytest.mark.parametrize('text', [
    '[[0, 5000], [0, 0]]', '{"n": 2, "flows": [[0, 1, 5000]]}',
    '{"pattern": "ring", "n": 2, "flow_size": 5000}',
    '{"pattern": "ring", "n": 2, "size": 5000}',
    '[{"name": "a", "tm": [[0, "5GB"], [5000, 0]]}]'])
def test_a_small_number_without_a_unit_may_be_a_mistake(text):
    assert facts('check', text, '--vms', '2')['warnings'] == [
        'A size without a unit is in bytes: 5000 is 5 kB.']


def test_each_small_number_is_told_once():
    flows = [[i % 2, 1 - i % 2, 1 + i // 2] for i in range(14)]
    text = json.dumps({'n': 2, 'flows': flows})
    assert facts('check', text, '--vms', '2')['warnings'] == [
        *(f'A size without a unit is in bytes: {n} is {n} B.'
          for n in range(1, 6)),
        '2 other sizes without a unit are below 1 MB, too.']


@pytest.mark.parametrize('text', [
    PAIR, '[{"name": "a", "tm": [[0, 5000000], [0, 0]], "dst_port": 6},'
    ' {"name": "b", "tm": [[0, "1B"], [0, 0]], "dst_port": 5}]'])
def test_no_warning_without_a_cause(text):
    assert facts('check', text, '--vms', '2')['warnings'] == []


def test_the_limits_are_those_of_the_controller():
    defaults = {option.name: option.default for option in limits_conf.OPTS}
    assert defaults['max_vms_per_group'] == 500
    found = {one['limit']: one['at_most'] for one in facts(
        'check', PAIR)['limits']}
    assert found['VMs'] == str(defaults['max_vms_per_group'])
    assert found['Flows'] == f'{defaults["max_flows_per_group"]:,}'
    with pytest.raises(exception.HintInvalid, match='between 1 and 500'):
        running.hint('check', '{"n": 501, "flows": []}')


def test_a_file_is_named_where_it_is_wrong(tmp_path):
    path = tmp_path / 'tm.json'
    path.write_text('[[0, "5Gb"],\n [0, 0]]')
    with pytest.raises(exception.InputInvalid) as caught:
        running.hint('check', str(path))
    assert str(caught.value) == (
        f'{path}: virtco:tm[0][1]: expected a size in bytes, such as 5GB, '
        "not in bits, got '5Gb'.")
    path.write_text('[[0, 5],\n [0, x]]')
    with pytest.raises(exception.InputInvalid, match='line 2 column 6'):
        running.hint('check', str(path))
    with pytest.raises(exception.InputInvalid, match='an existing file'):
        running.hint('check', str(tmp_path / 'other.json'))


@pytest.mark.parametrize('argv, field', [
    (['--vms', '0'], '--vms'), (['--vms', ''], '--vms'),
    (['--slots', ''], '--slots'), (['--rate', '1GB/s'], '--rate'),
    (['--slots', 'x'], '--slots'), (['--slots', '0'], '--slots')])
def test_options_that_are_refused(argv, field):
    with pytest.raises(exception.InputInvalid,
                       match=f'Command line: {field}:'):
        running.hint('check', PAIR, *argv)


def test_whole_hints_are_checked(tmp_path):
    path = tmp_path / 'hints.json'
    path.write_text(json.dumps({'virtco:coflow': 'a', 'virtco:tm': [[0, 1],
                                                                    [0, 0]],
                                'virtco:index': 1}))
    assert facts('check', str(path))['hints']['virtco:index'] == '1'
    path.write_text('{"virtco:cofow": "a"}')
    with pytest.raises(exception.InputInvalid, match='one of the keys'):
        running.hint('check', str(path))
    joins = running.hint('check', '{"virtco:coflow": "a"}')
    assert 'joins a group' in joins and ready(joins) == [
        '--hint', 'virtco:coflow=a']


def test_keys_of_others_are_left_alone():
    found = facts('check', '{"virtco:coflow": "a", "os:key": 1}')
    assert (found['hints'], found['n_vms']) == ({'virtco:coflow': 'a'}, 0)


def test_the_shortest_text_is_told_to_programs():
    found = facts('check', PAIR)
    assert found['hints']['virtco:tm'] == '[[0,"5GB"],["1GB",0]]'
    for text in (running.hint('check', PAIR, '--format', 'json'),
                 running.hint('metadata', PAIR, '--format', 'json')):
        assert text.startswith('{\n "')


def test_a_hint_without_flows_has_no_largest_one():
    found = {one['limit']: one['used'] for one in facts(
        'check', '[[0, 0], [0, 0]]')['limits']}
    assert (found['Largest flow'], found['Flows']) == ('0 B', '0')


@pytest.mark.parametrize('option', ['--vms', '--slots'])
def test_numbers_of_vms_have_bounds(option):
    for number in '1', '100000':
        assert running.hint('check', PAIR, option, number)
    with pytest.raises(exception.InputInvalid, match='between 1 and 100000'):
        running.hint('check', PAIR, option, '100001')


@pytest.mark.parametrize(('chars', 'n'), [(32130, 0), (32131, 1)])
def test_texts_too_long_for_metadata_are_told(chars, n):
    """Two of 128 items are for the name and for what else there is."""
    found = commands.figures_of({'virtco:coflow': 'a', 'virtco:tm': PAIR})
    warnings = figures.warnings(
        dataclasses.replace(found, text='x' * chars), None)
    assert len(warnings) == n
    assert all('not into metadata' in text for text in warnings)


def test_commands_say_what_they_do():
    for command in program.COMMANDS.values():
        made = command(None)
        assert made.get_description().startswith(('Make ', 'Check ', 'Write '))
        assert not made.deprecated


def test_a_long_text_stays_in_its_file(tmp_path):
    path = tmp_path / 'tm.json'
    dense = json.dumps([[src * 1000 + dst for dst in range(40)]
                        for src in range(40)])
    path.write_text(dense)
    assert f'--hint "virtco:tm=$(cat {path})"' in running.hint(
        'check', str(path))
    other = tmp_path / 'short.json'
    assert f'--hint "virtco:tm=$(cat {other})"' in running.hint(
        'check', dense, '--output', str(other))
    same = [hints.parse({'virtco:coflow': 'a', 'virtco:tm': text})
            for text in (dense, other.read_text().strip())]
    assert same[0] == same[1]


HOSTS = [controllers.made(host_wire.Host, host=name) for name in ('h1', 'h2')]


class Controller:
    """Two hosts; the plan puts every VM onto the first one."""

    def __init__(self, error=None):
        self.error = error
        self.asked = None

    def call(self, operation, **request):
        if self.error:
            raise self.error
        if operation == host_wire.LIST:
            return host_wire.Hosts(HOSTS)
        self.asked = request
        return controllers.made(
            plan_wire.Plan, cct_s=2.5, lower_bound_s=2.0,
            bottleneck='h1 egress',
            bound_scope='any placement under these constraints', vms=[
                {'group': 'a', 'row': row, 'host': 'h1'} for row in (0, 1)])


def test_what_if():
    controller = Controller()
    screen = running.hint('check', PAIR, '--controller', 'http://c',
                          client=controller)
    assert ('2.5 s, at least 2 s for any placement under these constraints; '
            'h1 egress decides.') in ' '.join(
        screen.split())
    assert screen.splitlines()[-1].split() == ['h1', '2', '0,', '1']
    assert controller.asked['groups'][0]['tm'] == '[[0,"5GB"],["1GB",0]]'
    assert controller.asked['hosts'] == [
        {'host': name, 'free': {'vcpus': 8, 'memory_mb': 8, 'disk_gb': 8}}
        for name in ('h1', 'h2')]


def test_a_group_that_just_fits_is_asked_about():
    assert '2.5 s' in running.hint('check', PAIR, '--controller', 'http://c',
                                   '--slots', '1', client=Controller())


@pytest.mark.parametrize(('n', 'rows'), [
    (10, '0, 1, 2, 3, 4, 5, 6, 7, 8, 9'),
    (11, '0, 1, 2, 3, 4, 5, 6, 7, 8, …')])
def test_long_names_and_many_rows_are_cut(n, rows):
    class Long(Controller):
        def call(self, operation, **request):
            if operation == host_wire.LIST:
                return host_wire.Hosts(HOSTS)
            return controllers.made(
                plan_wire.Plan, cct_s=1, lower_bound_s=1, bottleneck='none',
                bound_scope='any', vms=[
                    {'group': 'a', 'row': row, 'host': 'x' * 41}
                    for row in reversed(range(n))])

    screen = running.hint('check', PAIR, '--controller', 'http://c',
                          client=Long())
    assert screen.splitlines()[-1] == f'{"x" * 40}  {n:>3}  {rows:>28}'


@pytest.mark.parametrize('client, words', [
    (Controller(exception.Forbidden(what='x')), 'operators ask only'),
    (Controller(exception.ControllerUnavailable(url='u', why='refused')),
     'no answer. The virtco controller at u'),
])
def test_the_check_stands_without_a_what_if(client, words):
    screen = running.hint('check', PAIR, '--controller', 'http://c',
                          client=client)
    assert words in screen and '--hint virtco:coflow=coflow' in screen


def test_the_program_leaves_the_option_to_the_command():
    argv = ['hint', 'check', PAIR, '--controller', 'http://c']
    parser = shell.Shell().build_option_parser('', '')
    options, rest = parser.parse_known_args(argv)
    assert rest == argv and options.controller_url != 'http://c'


def test_hints_need_neither_numpy_nor_openstacks_client():
    code = '''if True:
        import sys
        for name in ('numpy', 'scipy', 'osc_lib', 'openstack',
                     'openstackclient', 'sqlalchemy', 'falcon', 'rich',
                     'cliff', 'oslo_config'):
            sys.modules[name] = None
        from virtco_tenant.hintkit import program
        print(program.COMMANDS['check'].__name__)
    '''
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, text=True,
                          capture_output=True)
    assert (done.returncode, done.stdout) == (0, 'Check\n'), done.stderr


def test_a_reader_that_ends_is_told_in_one_line(monkeypatch, capsys):
    def write(_text):
        raise BrokenPipeError(32, 'Broken pipe')

    monkeypatch.setattr(sys, 'stdout', types.SimpleNamespace(write=write))
    assert program.main(['check', PAIR]) == 1
    assert capsys.readouterr().err == 'virtco-hint: [Errno 32] Broken pipe\n'


def test_a_command_that_needs_more_says_what_to_install():
    code = """if True:
        import sys
        sys.modules['osc_lib'] = None
        from virtco.osc import shell
        sys.exit(shell.main(['coflow', 'list']))
    """
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, text=True,
                          capture_output=True)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        'virtco coflow list: the Python package osc_lib is not installed; '
        "the extra osc of virtco brings it: pip install 'SOURCE[osc]'")


def test_the_program_of_tenants_says_what_virtco_says(capsys):
    text = '[[0, "5GB"], ["1GB", 0]]'
    assert program.main(['check', text, '--name', 'sort']) == 0
    assert capsys.readouterr().out == running.hint(
        'check', text, '--name', 'sort')
    assert program.main(['check', '[[0']) == 1
    assert capsys.readouterr().err.startswith('virtco-hint: Hint virtco:tm: ')
    for words in ([], ['made-up'], ['check']):
        with pytest.raises(SystemExit, match='2'):
            program.main(words)
    assert 'usage: virtco-hint' in capsys.readouterr().err


def test_the_program_takes_the_words_behind_its_name(capsys, monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['virtco-hint', 'check', PAIR])
    assert program.main() == 0
    assert capsys.readouterr().out == running.hint('check', PAIR)


def test_every_command_is_an_entry_point():
    project = tomllib.loads(
        (ROOT / 'tenant/pyproject.toml').read_text())['project']
    found = project['entry-points']['virtco.cli']
    assert found == {f'hint_{name}': f'{command.__module__}:{command.__name__}'
                     for name, command in program.COMMANDS.items()}


@given(st.integers(2, 12), st.data())
def test_metadata_says_what_was_given(n, data):
    sizes = st.integers(0, 10 ** 12)
    matrix = [[0 if i == j else data.draw(sizes) for j in range(n)]
              for i in range(n)]
    matrix[0][1] += 1
    given_hint = {'virtco:coflow': 'a', 'virtco:tm': json.dumps(matrix),
                  'virtco:within': 'rack:preferred'}
    text = json.dumps(given_hint)
    values = json.loads(running.hint('metadata', text, '--format', 'json'))
    assert max(map(len, values.values())) <= 255
    assert hints.parse({}, values) == hints.parse(given_hint)
    words = shlex.split(running.hint('metadata', text))
    assert set(words[::2]) == {'--property'}
    assert dict(word.split('=', 1) for word in words[1::2]) == values


def test_a_pattern_stays_short_as_metadata():
    assert shlex.split(running.hint(
        'metadata', '{"pattern": "all-to-all", "n": 200, "size": "1TB"}',
        '--name', 'sort')) == [
        '--property', 'virtco:coflow=sort', '--property',
        'virtco:tm={"pattern":"all-to-all","n":200,"size":"1TB"}']


def test_a_matrix_that_metadata_cannot_hold_is_refused(tmp_path):
    path = tmp_path / 'matrix.json'
    path.write_text(json.dumps([[10 ** 9 + i * j for j in range(80)]
                                for i in range(80)]))
    with pytest.raises(exception.HintInvalid, match='128 metadata items'):
        running.hint('metadata', str(path))


def test_the_screen_tells_of_all_that_a_coflow_hints():
    screen = ' '.join(running.hint('check', json.dumps([
        {'name': 'load', 'tm': [[0, 7], [3, 0]], 'dst_port': 5201,
         'iterations': 3, 'period': 40, 'compute': 5, 'order': 'mrtf'},
        {'name': 'rest', 'tm': [[0, 1], [0, 0]], 'dst_port': 5202,
         'iterations': 0, 'period': 2, 'rank_hint': True}])).split())
    assert ('Coflow load: 2 flows, 10 B, port 5201, 3 iterations, '
            'period 40 s, compute 5 s, order mrtf') in screen
    assert ('Coflow rest: 1 flows, 1 B, port 5202, endless iterations, '
            'period 2 s, wants an order of ranks') in screen
    assert 'in 2 coflows' in screen
    assert 'Coflow coflow' not in running.hint('check', PAIR)
    alone = {'name': 'a', 'tm': [[0, 1], [0, 0]], 'iterations': 3}
    assert 'Coflow a: 1 flows, 1 B, 3 iterations' in running.hint(
        'check', json.dumps([alone]))
    screen = running.hint('check', json.dumps([
        {'name': name, 'tm': [[0, 1], [0, 0]]} for name in 'ab']))
    assert 'Coflow b: 1 flows, 1 B\n' in screen


@pytest.mark.parametrize('hint, words', [
    ({'virtco:coflow': 'a', 'virtco:tm_ref': 'r-1'},
     'Hint a: the registered matrix r-1, which only'),
    ({'virtco:coflow': 'a'}, 'Hint a: joins a group'),
    ({'virtco:coflow': 'a', 'virtco:tm': [[0, 1], [0, 0]],
      'virtco:within': 'rack', 'virtco:spread': 'pod:required'},
     'Wishes: all of it below one rack (preferred), evenly below every pod '
     '(required).'),
    ({'virtco:coflow': 'a', 'virtco:tm': [[0, 1], [0, 0]],
      'virtco:spread': 'pod:skew=2'},
     'Wishes: evenly below every pod but for 2 (preferred).')])
def test_the_title_tells_what_kind_of_hint_it_is(hint, words):
    screen = ' '.join(running.hint('check', json.dumps(hint)).split())
    assert words in screen


def test_a_group_that_does_not_fit_is_not_asked_about():
    client = types.SimpleNamespace(
        call=lambda operation: host_wire.Hosts(HOSTS))
    screen = ' '.join(running.hint(
        'check', '{"pattern": "ring", "n": 5, "size": 5}', '--controller',
        'x', '--slots', '1', client=client).split())
    assert ('What-if: 5 VMs do not fit onto 2 hosts with 1 slots each'
            in screen)
