# SPDX-License-Identifier: Apache-2.0

"""What several tests look for in sources, each parsed once."""

import ast
import functools
import io
import pathlib
import tokenize
from typing import NamedTuple


class Source(NamedTuple):
    """A module.

    :ivar openings: first lines of the docstrings of the module, its classes
        and functions, each with the line number of what it describes.
    :ivar undocumented: public classes, functions and methods without a
        docstring: line number and name.
    :ivar methods: names of methods that have a docstring.
    :ivar imports: all its statements that import.
    :ivar reaches: names of attributes of anything but ``self``.
    """

    docstring: str
    openings: tuple[tuple[int, str], ...]
    undocumented: tuple[tuple[int, str], ...]
    methods: frozenset[str]
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
    methods, undocumented = set(), []
    for owner, node in _definitions(tree):
        if ast.get_docstring(node) is None:
            undocumented.append((node.lineno, node.name))
        elif isinstance(owner, ast.ClassDef):
            methods.add(node.name)
    return Source(ast.get_docstring(tree) or '', tuple(openings),
                  tuple(undocumented), frozenset(methods),
                  tuple(imports), frozenset(reaches))


def comments(text):
    """List the comments of a module: number of the first line and text.

    Comments on lines below each other are one.
    """
    found, end = [], None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, column = token.start
        is_alone = not token.line[:column].strip()
        said = token.string.lstrip('#:').strip()
        if is_alone and end == (line - 1, column):
            found[-1] = found[-1][0], f'{found[-1][1]} {said}'
        else:
            found.append((line, said))
        end = (line, column) if is_alone else None
    return found


def _definitions(owner):
    """Yield each public class, function and method behind its owner."""
    for node in owner.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef
                      | ast.AsyncFunctionDef) and node.name[0] != '_':
            yield owner, node
            if isinstance(node, ast.ClassDef):
                yield from _definitions(node)
