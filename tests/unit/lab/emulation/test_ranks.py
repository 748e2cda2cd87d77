# SPDX-License-Identifier: Apache-2.0

"""What a rank runs, with an MPI of the test's own."""

import importlib
import json
import sys
import types

import pytest


class Comm:
    """Of four ranks, of which this process is one."""

    def __init__(self, rank):
        self.rank, self.size = rank, 4
        self.told = []

    def Barrier(self):
        self.told.append('barrier')

    def Bcast(self, data, root):
        self.told.append(('broadcast', len(data[0]), data[1], root))

    def Reduce(self, mine, total, operation, root):
        self.told.append(('reduce', len(mine[0]), len(total[0]), mine[1],
                          total[1], operation, root))

    def Irecv(self, data, source):
        self.told.append(('receive', len(data[0]), source))
        return source

    def Ssend(self, data, target):
        self.told.append(('send', len(data[0]), target))

    def gather(self, value):
        if self.rank:
            return None
        if isinstance(value, str):
            return [value, 'h1', 'h2', 'h3']
        began_s, ended_s = value
        return [value, (began_s + 0.5, ended_s + 0.25)]


@pytest.fixture(name='load')
def _load(monkeypatch):
    def load(rank=0):
        clock = iter(range(1000))
        comm = Comm(rank)
        mpi = types.SimpleNamespace(
            COMM_WORLD=comm, BYTE='byte', INT64_T='int64', SUM='sum',
            Wtime=lambda: float(next(clock)),
            Get_processor_name=lambda: 'h0', Request=types.SimpleNamespace(
                Waitall=lambda them: comm.told.append(('all', them))))
        module = types.ModuleType('mpi4py')
        module.MPI = mpi
        monkeypatch.setitem(sys.modules, 'mpi4py', module)
        name = 'virtco_lab.emulation.ranks'
        monkeypatch.delitem(sys.modules, name, raising=False)
        found = importlib.import_module(name)
        monkeypatch.delitem(sys.modules, name)
        return found, comm
    return load


def test_the_first_rank_tells_where_all_are_and_each_time_but_the_first(
        load, monkeypatch, capsys):
    ranks, comm = load()
    monkeypatch.setattr(sys, 'argv', ['x', 'broadcast', '16', '2'])
    ranks.main()
    # From the first that began to the last that ended: a second and a
    # quarter each.
    assert json.loads(capsys.readouterr().out) == {
        'hosts': ['h0', 'h1', 'h2', 'h3'], 'took_s': [1.25, 1.25]}
    assert comm.told == 3 * ['barrier', ('broadcast', 16, 'byte', 0)]
    ranks, _comm = load(rank=1)
    ranks.main()
    assert capsys.readouterr().out == ''


def test_a_reduce_adds_up_whole_numbers(load):
    ranks, comm = load()
    ranks._reduce('24')()
    assert comm.told == [('reduce', 24, 24, 'int64', 'int64', 'sum', 0)]


def test_an_exchange_sends_to_the_next_ranks_first(load, tmp_path):
    path = tmp_path / 'volumes'
    path.write_text(json.dumps([[0, 1, 2, 3], [4, 0, 5, 0], [6, 7, 0, 8],
                                [0, 9, 10, 0]]))
    ranks, comm = load(rank=2)
    ranks._exchange(str(path))()
    assert comm.told == [
        ('receive', 2, 0), ('receive', 5, 1), ('receive', 10, 3),
        ('send', 8, 3), ('send', 6, 0), ('send', 7, 1), ('all', [0, 1, 3])]
    ranks, comm = load(rank=3)
    ranks._exchange(str(path))()
    # Of nothing there is no message.
    assert comm.told == [
        ('receive', 3, 0), ('receive', 8, 2), ('send', 9, 1),
        ('send', 10, 2), ('all', [0, 2])]
