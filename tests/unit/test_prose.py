# SPDX-License-Identifier: Apache-2.0

"""Docstrings and pages that a reader without the code understands."""

import itertools
import pathlib
import re

import pytest

from tests import sources
from tests.unit import test_layers as layers

PRODUCT = ('virtco', 'edge_module', 'nova_filters', 'lab/virtco_lab',
           'tenant/virtco_tenant')
# First lines without a subject, or with a pronoun or "what" in its place.
VAGUE = re.compile(r'\b(of|by|from|to|for|with|all|is|and|,) what\b'
                   r'|\b([Aa]new|[Ss]o many|[Ss]o often|[Ww]hoever)\b')
RIDDLE = re.compile(
    r'^(Of|Those|Ones?|It|What|Which|Whom|By|Towards|Without|That|Others'
    r'|(After|At|From|In|On|When|With) which)\b'
    f'|{VAGUE.pattern}')
# A what-if has a name.
WHAT = re.compile(r'\b[Ww]hat\b(?!-if)')


@pytest.mark.parametrize('line', [
    'Of each host.', 'What was measured.', 'So many hosts at most.',
    'One class of the tree.', 'Rate of what arrived.',
    'At most so many within a minute.', 'After which it is given up.'])
def test_a_riddle_is_found(line):
    assert RIDDLE.search(line)


@pytest.mark.parametrize('line', [
    'Return the rate of each host, in bit/s.', 'Result of a measurement.',
    'Often used classes of the tree.', 'Bytes by (sender, receiver).'])
def test_plain_prose_is_none(line):
    assert not RIDDLE.search(line)


def test_docstrings_open_with_their_subject():
    found = sorted(f'{path.relative_to(layers.ROOT)}:{number}: {line}'
                   for path in layers._sources(PRODUCT)
                   for number, line in sources.read(path).openings
                   if RIDDLE.search(line))
    assert not found, '\n'.join(found)


def test_what_is_no_noun():
    found = [f'{path.relative_to(layers.ROOT)}:{number}: {line}'
             for path in layers._sources(PRODUCT)
             for number, line in sources.read(path).openings
             if WHAT.search(line)]
    assert not found, '\n'.join(found)


def test_comments_are_read_as_paragraphs():
    assert sources.comments('''\
a = 1  # One.
#: Two
#: lines.
if a:
    # Another.
    b = '# none'
    # Its own.
''') == [(1, 'One.'), (2, 'Two lines.'), (5, 'Another.'), (7, 'Its own.')]


def test_comments_open_with_their_subject():
    found = [f'{path.relative_to(layers.ROOT)}:{number}: {comment}'
             for path in layers._sources(PRODUCT)
             for number, comment in sources.comments(path.read_text())
             if RIDDLE.search(comment) or WHAT.search(comment)]
    assert not found, '\n'.join(found)


# A field that is not named by a noun, or a docstring of fields alone.
FIELD = re.compile(
    r'^ *(?:""")?:(?:ivar|param|cvar) [^:\n]+: '
    r'(?:of|those|that|what|whose|which|who|where|when|as|by|per|since|until'
    r'|with|without|from|for|it)\b'
    r'|^ *"""(?:\n +)?:(?:ivar|param)\b', re.MULTILINE)


@pytest.mark.parametrize('text', [
    ':ivar host: of the port.', '    """:ivar a: one.',
    '"""\n    :param a: b'])
def test_a_field_without_a_noun_is_found(text):
    assert FIELD.search(text)


def test_a_field_with_a_noun_is_none():
    assert not FIELD.search('"""A port.\n\n    :ivar host: host of it.')


def test_fields_are_named_by_nouns():
    found = [str(path.relative_to(layers.ROOT))
             for path in layers._sources(PRODUCT)
             if FIELD.search(path.read_text())]
    assert not found


def test_public_definitions_say_what_they_do():
    """Methods have the docstring of the method that they override."""
    described = frozenset().union(*(
        sources.read(path).methods for path in layers._sources(PRODUCT)))
    assert [f'{path.relative_to(layers.ROOT)}:{number}: {defined}'
            for path in layers._sources(PRODUCT)
            for number, defined in sources.read(path).undocumented
            if defined not in described] == []


PAGES = [path for name in ('doc/source', 'devstack', 'README.rst',
                           'CONTRIBUTING.rst')
         for path in [layers.ROOT / name, *(layers.ROOT / name).rglob('*')]
         # tools/nightly writes that page.
         if path.suffix == '.rst' and path.name != 'nightly.rst']
# "Without a hint Nova …" names its subject, unlike such a docstring.
VAGUE_OPENING = re.compile(
    r'(Of|Those|Ones? that|It|What|Which|Whom|By which)\b')
WIDTH = 79
# Directives with a body that is prose.
PROSE = re.compile(r' *\.\. (note|warning|glossary|list-table|figure)::')
ITEM = re.compile(r' *((?:(?:[*-]|\d+\.|#\.) +)*)')
TABLE = re.compile(r'^ *(=+ +=[= ]*|[+|].*)$', re.MULTILINE)


def paragraphs(text):
    """Yield lists of lines outside of literals, tables and directives."""
    literal = None
    for chunk in re.split(r'\n\s*\n', text):
        is_table = TABLE.search(chunk)
        found = []
        for line in chunk.splitlines():
            indent = len(line) - len(line.lstrip())
            if literal is not None and indent > literal:
                continue
            literal = None
            if line.lstrip().startswith('.. ') and not PROSE.match(line):
                literal = indent
            elif not is_table:
                found.append(line)
            if line.endswith('::') and not PROSE.match(line):
                literal = indent
        yield found


def prose(text):
    """Yield the lines of all paragraphs."""
    return itertools.chain.from_iterable(paragraphs(text))


def page_openings(text):
    """Yield the first line of each paragraph and of each item of a list."""
    for lines in paragraphs(text):
        for number, line in enumerate(lines):
            found = ITEM.match(line)
            if number == 0 or found[1]:
                yield line[found.end():]


def test_prose_leaves_out_what_is_literal():
    assert list(prose('''\
Title

.. image:: one
   :alt: two

A line::

   literal

   more

==  ===
1   2
==  ===

.. note::
   A note.
''')) == ['Title', 'A line::', '.. note::', '   A note.']


def test_a_page_opens_paragraphs_titles_and_items():
    assert list(page_openings('''\
Title
=====

A line,
and another.

* - It is
    long.
2. Second.
''')) == ['Title', 'A line,', 'It is', 'Second.']


@pytest.mark.parametrize('path', PAGES, ids=lambda path: (
    path.relative_to(layers.ROOT).as_posix()))
def test_pages_are_narrow_and_plain(path: pathlib.Path):
    lines = list(prose(path.read_text()))
    wide = [line for line in lines
            if len(line) > WIDTH and ' ' in line.strip()]
    assert not wide, '\n'.join(wide)
    joined = [line for line in lines if re.search(r'\w [=~^-]{6,}$', line)]
    assert not joined, f'titles with their underline beside them: {joined}'
    vague = [line for line in lines if VAGUE.search(line)] + [
        line for line in page_openings(path.read_text())
        if VAGUE_OPENING.match(line)]
    assert not vague, '\n'.join(vague)


def test_tests_that_pages_name_are_there():
    named = {name for path in PAGES
             for name in re.findall(r'``(test_\w+)``', path.read_text())}
    there = {name for path in (layers.ROOT / 'tests').rglob('test_*.py')
             for name in [path.stem, *re.findall(
                 r'^def (test_\w+)\(', path.read_text(), re.MULTILINE)]}
    assert named and named <= there


def test_a_test_is_named_with_each_rule_of_neutron():
    page = (layers.ROOT / 'doc/source/reference/edge.rst').read_text()
    _, _, rest = page.partition('.. _neutron-qos:')
    table, _, _ = rest.partition('.. _virtual-functions:')
    _before, _head, *rows = table.split('\n   * - ')
    assert len(rows) == 6
    assert not [row for row in rows if '``test_' not in row]


@pytest.mark.parametrize('path', [
    path for path in PAGES if re.search(r'^#\. ', path.read_text(), re.M)],
    ids=lambda path: path.relative_to(layers.ROOT).as_posix())
def test_pages_with_steps_say_for_whom_and_from_where(path):
    text = path.read_text()
    assert re.search(
        r'\bFor (tenants|operators|contributors|developers|everybody)\b',
        text.partition('\n#. ')[0])
    assert '\nBefore you begin\n' in text


@pytest.mark.parametrize('path', PAGES, ids=lambda path: (
    path.relative_to(layers.ROOT).as_posix()))
def test_pip_installs_virtco_from_its_source(path):
    """No index has it."""
    assert not re.search(r"pip install\s+(\S+\s+){0,2}'?virtco",
                         path.read_text())
