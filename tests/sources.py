# SPDX-License-Identifier: Apache-2.0

"""What several tests look for in sources, each parsed once."""

import ast
import functools
import pathlib
from typing import NamedTuple


class Source(NamedTuple):
    """A module.

    :ivar openings: first lines of the docstrings of the module, its classes
        and functions, each with the line number of what it describes.
    :ivar imports: all its statements that import.
    :ivar reaches: names of attributes of anything but ``self``.
    """

    docstring: str
    openings: tuple[tuple[int, str], ...]
    imports: tuple[ast.Import | ast.ImportFrom, ...]
    reaches: frozenset[str]


@functools.cache
def read(path: pathlib.Path) -> Source:
    tree = ast.parse(path.read_text(encoding='utf-8'))
    openings, imports, reaches = [], [], set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef
                      | ast.AsyncFunctionDef) and (
                          text := ast.get_docstring(node)):
            openings.append((getattr(node, 'lineno', 1),
                             text.partition('\n')[0]))
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append(node)
        elif isinstance(node, ast.Attribute) and not (
                isinstance(node.value, ast.Name) and node.value.id == 'self'):
            reaches.add(node.attr)
    return Source(ast.get_docstring(tree) or '', tuple(openings),
                  tuple(imports), frozenset(reaches))
