# SPDX-License-Identifier: Apache-2.0

"""What commands read and write, and numbers between their ends."""

import pytest

from virtco import exception
from virtco.hintkit import inputs


def test_a_text_is_written_or_the_place_is_named(tmp_path):
    inputs.write_text(str(tmp_path / 'tm'), '[]')
    assert (tmp_path / 'tm').read_text() == '[]\n'
    with pytest.raises(exception.VirtcoException, match='can be written'):
        inputs.write_text(str(tmp_path / 'no' / 'tm'), '[]')


@pytest.mark.parametrize(('text', 'is_good'), [
    ('2', True), ('5', True), ('1', False), ('6', False), ('-3', False),
    ('3.0', False), ('', False)])
def test_a_count_is_between_its_ends(text, is_good):
    if is_good:
        assert inputs.count('here', '--vms', text, 2, 5) == int(text)
        return
    with pytest.raises(exception.VirtcoException, match='between 2 and 5'):
        inputs.count('here', '--vms', text, 2, 5)
