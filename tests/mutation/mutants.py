# SPDX-License-Identifier: Apache-2.0

"""Mutants of a module: its syntax tree with one operator or constant changed.

Pure: text in, trees out. Strings, annotations, docstrings, decorators,
defaults of type checking and calls of a logger are left alone, since no unit
test is meant to see them.
"""

import ast
from collections.abc import Iterator
import copy
import dataclasses
import itertools

_SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
    ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div,
    ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.And: ast.Or,
    ast.Or: ast.And}
_NAMES = {'min': 'max', 'max': 'min', 'any': 'all', 'all': 'any',
          'minimum': 'maximum', 'maximum': 'minimum'}
_LOGGERS = {'LOG', 'log', 'logging', 'warnings'}
#: Fields of a node that hold nothing a test executes.
_IGNORED = {'annotation', 'returns', 'decorator_list', 'type_params'}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of one module.

    :ivar path: the module, relative to the root of the project.
    :ivar where: qualified name of the function or class around it.
    :ivar line: number of the changed line, from 1.
    :ivar before: the changed expression as source text.
    :ivar after: its replacement.
    :ivar number: which change of the module it is, from 0.
    """

    path: str
    where: str
    line: int
    before: str
    after: str
    number: int

    @property
    def key(self) -> str:
        """Name that survives edits elsewhere in the file."""
        return f'{self.path} | {self.where} | {self.before} → {self.after}'


def find(path: str, text: str, lines: set[int] | None = None
         ) -> list[Mutant]:
    """List the mutants of a module, in the order of its lines.

    :param lines: numbers of the lines that may change; None: all.
    """
    found = []
    for number, (where, node, change) in enumerate(_sites(ast.parse(text))):
        if lines is None or node.lineno in lines:
            found.append(Mutant(path, where or '<module>', node.lineno,
                                *_as_text(node, change), number))
    return found


def build(text: str, number: int) -> ast.Module:
    """Make the syntax tree of a module with its change of that number."""
    tree = ast.parse(text)
    _, node, change = next(itertools.islice(_sites(tree), number, None))
    new = ast.copy_location(change, node)
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is node:
                setattr(parent, name, new)
            elif isinstance(value, list):
                value[:] = [new if item is node else item for item in value]
    return ast.fix_missing_locations(tree)


def _sites(tree: ast.Module) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    for where, node in _nodes(tree, ''):
        for change in _changes(node):
            yield where, node, change


def _as_text(node: ast.AST, change: ast.AST) -> tuple[str, str]:
    if isinstance(node, (ast.If, ast.While)):
        node, change = node.test, change.test  # type: ignore
    return ast.unparse(node), ast.unparse(change)


def _nodes(node: ast.AST, where: str) -> Iterator[tuple[str, ast.AST]]:
    """Yield what may change, with the name of what it stands in."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef,
                         ast.ClassDef)):
        where = f'{where}.{node.name}' if where else node.name
    if _is_left_alone(node):
        return
    if hasattr(node, 'lineno'):
        yield where, node
    for name, value in ast.iter_fields(node):
        if name in _IGNORED or _is_negative(node) or (
                name == 'keywords' and isinstance(node, ast.ClassDef)):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _nodes(child, where)


def _is_left_alone(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        call = node.value
        if isinstance(call, ast.Constant):
            return True
        if isinstance(call, ast.Call) and isinstance(
                call.func, ast.Attribute):
            root = call.func.value
            return isinstance(root, ast.Name) and root.id in _LOGGERS
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in (
            '__name__ == \'__main__\'', 'typing.TYPE_CHECKING',
            'TYPE_CHECKING')
    return isinstance(node, (ast.Import, ast.ImportFrom, ast.JoinedStr))


def _is_negative(node: ast.AST) -> bool:
    return (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant))


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield replacements of a node; ``pass`` deletes a statement."""
    match node:
        case ast.Compare():
            for number, op in enumerate(node.ops):
                if type(op) in _SWAPS:
                    new = copy.deepcopy(node)
                    new.ops[number] = _SWAPS[type(op)]()
                    yield new
        case ast.BinOp() | ast.AugAssign() | ast.BoolOp():
            is_text = isinstance(node, ast.BinOp) and any(
                isinstance(side, (ast.JoinedStr, ast.List, ast.Tuple))
                or isinstance(side, ast.Constant)
                and isinstance(side.value, (str, bytes))
                for side in (node.left, node.right))
            if type(node.op) in _SWAPS and not is_text:
                new = copy.deepcopy(node)
                new.op = _SWAPS[type(node.op)]()
                yield new
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield copy.deepcopy(node.operand)
        case ast.Constant(value=bool()):
            yield ast.Constant(not node.value)
        case ast.Constant(value=int() | float()):
            yield ast.Constant(node.value + 1)
        case ast.Name(id=name) if name in _NAMES:
            yield ast.Name(_NAMES[name], ast.Load())
        case ast.Attribute(attr=name) if name in _NAMES and isinstance(
                node.value, ast.Name):
            yield ast.Attribute(copy.deepcopy(node.value), _NAMES[name],
                                node.ctx)
        case ast.If() | ast.IfExp() | ast.While():
            if not isinstance(node.test, (ast.Compare, ast.UnaryOp,
                                          ast.Constant)):
                new = copy.deepcopy(node)
                new.test = ast.UnaryOp(ast.Not(), new.test)
                yield new
        case ast.Raise() | ast.Expr(value=ast.Call()):
            yield ast.Pass()
