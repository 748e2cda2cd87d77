# SPDX-License-Identifier: Apache-2.0

"""Text of YAML or JSON as values, and the line at which each stands. Pure."""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import json
from typing import Any
from typing import TypeVar

import yaml

from virtco import decoding
from virtco import exception
from virtco.topology import laws

MAX_BYTES = 16 * 2 ** 20
MAX_NESTING = 64
#: The compiled parser reads ten times as fast; both answer the same.
_LOADER: Any = getattr(yaml, 'CSafeLoader', yaml.SafeLoader)

Path = tuple[Any, ...]
_T = TypeVar('_T')


class Unreadable(laws.Wrong):
    """The text itself makes no sense from a line on."""

    def __init__(self, line: int | None, value: str, limit: str):
        super().__init__((), 'text', value, limit)
        self.line = line


@contextlib.contextmanager
def lines(line_of: Callable[[Path], int | None]) -> Iterator[None]:
    """Name the line of a wrong value."""
    try:
        yield
    except Unreadable:
        raise
    except laws.Wrong as error:
        error.line = line_of(error.path)
        raise


@dataclasses.dataclass(frozen=True, slots=True)
class Document:
    """Parsed file that knows its lines.

    :ivar value: mappings, lists and texts: a YAML scalar is the text that
        stands there, so that a host may be called 0012.
    :ivar line: returns the line of the value at a path, or the nearest one.
    """

    value: Any
    line: Callable[[Path], int | None]


def _line(text: str, path: Path) -> int | None:
    """Find the line of a YAML document at which a path stands."""
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except (yaml.YAMLError, RecursionError):
        return None
    mark = node.start_mark if node is not None else None
    for key in path:
        found = _child(node, key)
        if found is None:
            break
        mark, node = found
    return int(mark.line) + 1 if mark is not None else None


def _child(node: Any, key: Any) -> tuple[Any, Any] | None:
    """Return the position of the child's key, and the child."""
    if isinstance(node, yaml.MappingNode):
        return next(((name.start_mark, value) for name, value in node.value
                     if name.value == key), None)
    if (isinstance(node, yaml.SequenceNode) and isinstance(key, int)
            and key < len(node.value)):
        return node.value[key].start_mark, node.value[key]
    return None


def from_lines(text: str) -> Document:
    """Take a text as it is; a path in it begins with a line's number.

    :raises Unreadable: for a text longer than MAX_BYTES.
    """
    _check_size(text)
    return Document(text, lambda path: next(iter(path), None))


def _check_size(text: str) -> None:
    if len(text) > MAX_BYTES:
        raise Unreadable(None, f'{len(text)} characters',
                         f'at most {MAX_BYTES} characters')


def from_json(text: str) -> Document:
    """Parse a JSON document.

    :raises virtco.exception.TopologyInvalid:
    """
    _check_size(text)
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise Unreadable(error.lineno, text[error.pos:error.pos + 20],
                         f'JSON ({error.msg})') from None
    except RecursionError:
        raise Unreadable(None, 'deep nesting', 'JSON less deeply nested'
                         ) from None
    # JSON takes tabs between values, YAML does not; inside a string JSON
    # takes none.
    return Document(value, functools.partial(_line, text.replace('\t', ' ')))


def from_yaml(text: str) -> Document:
    """Parse a YAML document without aliases.

    :raises virtco.exception.TopologyInvalid:
    """
    _check_size(text)
    try:
        # An alias would let a short text stand for an endless one.
        for event in yaml.parse(text, Loader=_LOADER):
            if isinstance(event, yaml.AliasEvent):
                raise Unreadable(event.start_mark.line + 1,
                                 f'*{event.anchor}', 'YAML without aliases')
        node = yaml.compose(text, Loader=_LOADER)
        return Document(_plain(node, 0), functools.partial(_line, text))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise Unreadable(mark.line + 1 if mark else None, text.splitlines()[
            mark.line] if mark and mark.line < len(text.splitlines())
            else '', f'YAML ({error.problem})') from None
    except (yaml.YAMLError, RecursionError) as error:
        raise Unreadable(None, type(error).__name__,
                         'YAML in printable text') from None


def _plain(node: Any, depth: int) -> Any:
    if depth > MAX_NESTING:
        raise Unreadable(node.start_mark.line + 1, 'deep nesting',
                         f'at most {MAX_NESTING} levels')
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, depth + 1) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, value in node.value:
            name = _plain(key, depth)
            if not isinstance(name, str) or name in found:
                raise Unreadable(key.start_mark.line + 1, str(name)[:40],
                                 'keys that are text, each once')
            found[name] = _plain(value, depth + 1)
        return found
    if node is None or node.tag == 'tag:yaml.org,2002:null':
        return None
    return str(node.value)


def to_yaml(value: Any) -> str:
    """Write a value as YAML in block style, with keys in their order."""
    return str(yaml.safe_dump(value, sort_keys=False,
                              default_flow_style=False))


class Untyped(laws.Wrong):
    """A value of another type than its place in the document has."""

    def __init__(self, error: exception.Invalid):
        exception.Invalid.__init__(self, **error.kwargs)
        self.path = error.kwargs['path']


def given(value: Any) -> Any:
    """Leave out the keys of mappings that have no value."""
    if isinstance(value, dict):
        return {key: given(below) for key, below in value.items()
                if below is not None}
    return list(map(given, value)) if isinstance(value, list) else value


def typed(value: Any, decoder: decoding.Decoder[_T]) -> _T:
    """Convert the value of a document to a type.

    :raises virtco.topology.formats.document.Untyped: with the path of the
        first value that has another type.
    """
    try:
        return decoder.convert(value)
    except exception.Invalid as error:
        raise Untyped(error) from None
