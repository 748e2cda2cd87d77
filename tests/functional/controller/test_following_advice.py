# SPDX-License-Identifier: Apache-2.0

"""A tenant does with the advice what the user guide says."""

import itertools
import json
import pathlib
import re
import shlex
import subprocess

import pytest

from tests import patience
from tests.functional.controller import test_advice
from virtco.osc import shell

USER = pathlib.Path(__file__).parents[3] / 'doc' / 'source' / 'user'
# Fixtures of a controller and a tenant with four VMs.
controller = test_advice.controller
tenant = test_advice.tenant


@pytest.fixture
def virtco(tenant, capsys):
    """Runs a command line and gives what it prints."""
    def run(*argv):
        capsys.readouterr()
        assert shell.main(['--controller-url', tenant.controller.url,
                           *argv]) == 0
        return capsys.readouterr().out
    return run


@pytest.fixture
def heavy(tenant):
    """Two ranks that are on a slow pair without advice."""
    hosts = tenant.hosts_by_row
    return next(pair for pair in itertools.combinations(range(4), 2)
                if frozenset(hosts[row] for row in pair)
                not in test_advice.FAST)


@pytest.fixture
def tm(heavy):
    """These exchange far more than any others do."""
    return [[0 if i == j else 9000000 if (i, j) == heavy else 5
             for j in range(4)] for i in range(4)]


@pytest.fixture
def matrix(tm, tmp_path):
    file = tmp_path / 'matrix.json'
    file.write_text(json.dumps(tm))
    return str(file)


def commands(page):
    """Advice that a page of the guide asks for, by the line."""
    text = (USER / page).read_text().replace('\\\n', ' ')
    lines = re.findall(r'^ +(?:\$ )?(virtco group advise .*)$', text,
                       re.MULTILINE)
    inline = [' '.join(line.split()) for line in re.findall(
        r'``(virtco\s+group\s+advise\s+\w+\s+--[^`]*)``', text)]
    return [' '.join(line.split()) for line in (*lines, *inline)]


@pytest.mark.parametrize('page', [
    'advice.rst', 'recipes/mpi.rst', 'recipes/pytorch.rst'])
def test_the_commands_of_the_guide(page, tenant, virtco, matrix):
    found = commands(page)
    assert found
    for line in found:
        argv = [matrix if word.endswith('.json') else word
                for word in shlex.split(line.partition('>')[0])]
        argv[argv.index('advise') + 1] = 'a'
        assert virtco(*argv[1:], '--project', tenant.project)


def test_each_vm_starts_torchrun_as_its_rank(tenant, virtco, matrix,
                                             tmp_path):
    """The lines run in a shell, with a torchrun that shows its options."""
    stub = tmp_path / 'torchrun'
    stub.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stub.chmod(0o755)
    asked = ('group', 'advise', 'a', '--tm', matrix,
             '--project', tenant.project, '--format')
    order = json.loads(virtco(*asked, 'json'))['order']
    lines = virtco(*asked, 'torchrun').splitlines()
    assert len(lines) == len(order)
    for rank, (row, line) in enumerate(zip(order, lines)):
        host, _, start = line.partition(': ')
        given = subprocess.run(
            ['sh', '-c', start, 'sh', 'train.py', '--an option'], check=True,
            env={'PATH': str(tmp_path)}, capture_output=True, text=True,
            executable='/bin/sh').stdout.splitlines()
        assert host == f'a-{row}'
        assert f'--node_rank={rank}' in given and '--nnodes=4' in given
        assert f'--master_addr=a-{order[0]}' in given
        # Rank 0 listens for the others; the job's own words come last.
        assert given[-2:] == ['train.py', '--an option']


def test_a_rankfile_is_open_mpi_s(tenant, virtco, matrix):
    """As man mpirun has it: rank, a host, and its slots."""
    asked = ('group', 'advise', 'a', '--tm', matrix,
             '--project', tenant.project, '--format')
    order = json.loads(virtco(*asked, 'json'))['order']
    for rank, line in enumerate(virtco(*asked, 'rankfile', '--slots',
                                       '0-7').splitlines()):
        match = re.fullmatch(r'rank (\d+)=([\w.-]+) slot=([\d,:-]+)', line)
        assert match.groups() == (str(rank), f'a-{order[rank]}', '0-7')
    assert rank == 3


def test_the_order_stands_in_the_next_launch(tenant, virtco, controller,
                                             heavy, tm, matrix, tmp_path):
    """Its matrix is then one of ranks: what the heavy ones exchange is
    between the VMs that the advice named.
    """
    order = json.loads(virtco(
        'group', 'advise', 'a', '--tm', matrix, '--project',
        tenant.project, '--format', 'json'))['rank_hint']
    assert [order[rank] for rank in heavy] != list(heavy)
    profile = tmp_path / 'mpi_matrix.txt'
    profile.write_text('\n'.join(' '.join(map(str, row)) for row in tm))
    hint = json.loads(virtco(
        'hint', 'from-mpi', str(profile), '--name', 't', '--rank-order',
        ','.join(map(str, order)), '--format', 'tm'))
    assert hint[0]['rank_hint'] == order
    # On hosts of which nothing was measured.
    other = controller.tenant()
    hosts = other.launch(4, matrix=json.dumps(hint),
                         hosts=dict.fromkeys(test_advice.HOSTS, 1))
    coflow = other.coflow('t')
    assert coflow['rank_hint'] is True
    # It is scheduled a moment after its launch.
    shown = patience.wait_for(lambda: (found := other.call(
        'GET', f'/v1/coflows/{coflow["id"]}', params={
            'project_id': other.project}))['bottleneck'] and found)
    ports = {(port['direction'], other.name(port['host'])) for port in (
        shown['bottleneck'],
        {'direction': shown['planned_bottleneck']['direction'],
         'host': shown['planned_bottleneck']['port']})}
    src, dst = (hosts[order[rank]] for rank in heavy)
    assert ports <= {('egress', src), ('ingress', dst)}
