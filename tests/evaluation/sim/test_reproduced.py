# SPDX-License-Identifier: Apache-2.0

"""The documentation's tables come out of the present code.

Planning is counted in operations, so that on one platform the numbers are the
recorded ones; ``virtco-sim reproduce all --check`` compares all of them.
"""

import pytest

from virtco_lab.cmd import sim as command

pytestmark = pytest.mark.evaluation


def test_a_few_cells_of_each_figure(capsys):
    code = command.main(['reproduce', 'all', '--check', '--short'])
    assert code == 0, capsys.readouterr().err
