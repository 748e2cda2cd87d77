# SPDX-License-Identifier: Apache-2.0

"""A few recorded cells of the evaluation come out of the present code.

Those of every figure: tests/evaluation; all: virtco-sim reproduce --check.
"""

from virtco_lab.cmd import sim as command

QUICK = ('virtco-case1', 'choreo-greedy', 'orchestra-table3',
         'orchestra-fig14', 'orchestra-fig15', 'facebook-like',
         'training-mixed')


def test_short_check_of_quick_figures(capsys):
    code = command.main(['reproduce', 'all', '--check', '--short', '--only',
                         ','.join(QUICK)])
    assert code == 0, capsys.readouterr().err
