# SPDX-License-Identifier: Apache-2.0

"""What stands in for a test of the full gear is there."""

import ast
import pathlib
import re

_TESTS = pathlib.Path(__file__).parents[1]


def _named():
    """Tests that strings name: the file that does, its file, its function."""
    for path in _TESTS.rglob('*.py'):
        if '.full(' not in path.read_text():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                for file, function in re.findall(
                        r'([a-z0-9_/]+\.py)::(test_\w+)', node.value):
                    yield path.name, file, function


def test_tests_that_are_named_are_there():
    named = list(_named())
    assert named
    gone = [one for one in named
            if f'def {one[2]}(' not in (_TESTS / one[1]).read_text()]
    assert gone == []
