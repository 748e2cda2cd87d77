# SPDX-License-Identifier: Apache-2.0

"""How outputs of commands are compared with pages."""

import pytest

from tests import book


@pytest.mark.parametrize('shown, found, is_alike', [
    (['a 1 ms', '…', 'c'], ['a 2.5 us', 'b', 'b', 'c'], True),
    (['| a ', '|…'], ['a'], True),
    (['a'], ['b'], False),
    (['a'], ['a', 'b'], False)])
def test_an_ellipsis_stands_for_any_text(shown, found, is_alike):
    assert bool(book.agree(book.plain(shown), book.plain(found))) == is_alike


def test_a_page_has_files_and_commands_with_outputs():
    lines = """\
.. code-block:: json
   :caption: one.json

   [1]

#. Step:

   .. code-block:: console

      $ one \\
          --two
      a
      $ three
""".splitlines()
    assert list(book.follow(lines)) == [
        book.Step('[1]\n', 'one.json'),
        book.Command('$ one --two', 11, 12, 6),
        book.Command('$ three', 13, 13, 6)]
