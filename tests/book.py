# SPDX-License-Identifier: Apache-2.0

"""What a page of the documentation tells to type and to write.

Commands are the lines of ``console`` blocks after a ``#`` prompt, with the
lines that continue them; a block with a caption that is a path is that file.
"""

import dataclasses
import pathlib
import re
import subprocess
from typing import ClassVar
from typing import NamedTuple

from docutils import core
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.parsers.rst.directives import body

ROOT = pathlib.Path(__file__).parents[1]
_DIRECTIVE = re.compile(r'( *)\.\. code-block:: (\w+)')
_END = '--- end of the output'
#: Words that differ between runs.
_ID = re.compile(r'\b[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}\b')
_NUMBER = re.compile(r'[-+]?\d[\d.,:]*(?:e[-+]?\d+)?')


@dataclasses.dataclass(frozen=True)
class Step:
    """A file to write, or commands when it has no path."""

    text: str
    path: str | None = None


class _CodeBlock(body.CodeBlock):
    """Sphinx's, as far as the pages use it."""

    option_spec: ClassVar = {**body.CodeBlock.option_spec,
                             'caption': directives.unchanged}

    def run(self):
        block, = super().run()
        block['caption'] = self.options.get('caption')
        return [block]


directives.register_directive('code-block', _CodeBlock)


def read(page):
    """Steps of a page, named as in ``install/controller``."""
    document = core.publish_doctree(
        _path(page).read_text(),
        # Sphinx's roles are not known here, and do not matter.
        settings_overrides={'report_level': 5})
    steps = []
    for block in document.findall(nodes.literal_block):
        path = block.get('caption')
        if path and path.startswith('/'):
            steps.append(Step(block.astext() + '\n', path))
        elif 'console' in block['classes']:
            if commands := _commands(block.astext()):
                steps.append(Step(commands))
    return steps


def _commands(text):
    """Without prompts and output; a command goes on where it is indented."""
    found, is_command = [], False
    for line in text.splitlines():
        if line.startswith('# '):
            found.append(line[2:])
            is_command = True
        elif is_command and line.startswith('  '):
            found.append(line)
        else:
            is_command = False
    return re.sub(r'\n\s*\n', '\n', '\n'.join(found))


class Command(NamedTuple):
    """A command of a page and the lines of its output.

    :ivar begin: index of the first line of the output.
    :ivar end: index of the line after the output.
    :ivar indent: spaces before each line.
    """

    text: str
    begin: int
    end: int
    indent: int


def follow(lines):
    """Yield the files and the commands of a page with their outputs."""
    at = 0
    while at < len(lines):
        found = _DIRECTIVE.match(lines[at])
        at += 1
        if not found:
            continue
        indent = len(found[1]) + 3
        begin = at
        while at < len(lines) and (not lines[at].strip() or len(
                lines[at]) - len(lines[at].lstrip()) >= indent):
            at += 1
        caption = re.search(r':caption: (\S+)', '\n'.join(lines[begin:at]))
        if found[2] == 'console':
            yield from _shown(lines, begin, at, indent)
        elif caption:
            text = '\n'.join(line[indent:] for line in lines[begin + 1:at])
            yield Step(text.strip() + '\n', caption[1])


def _shown(lines, begin, end, indent):
    while end > begin and not lines[end - 1].strip():
        end -= 1
    starts = [at for at in range(begin, end)
              if lines[at][indent:indent + 2] in ('$ ', '# ')]
    for at, after in zip(starts, [*starts[1:], end]):
        first = at + 1
        while lines[first - 1].endswith('\\'):
            first += 1
        text = ' '.join(line.rstrip('\\').strip()
                        for line in lines[at:first])
        yield Command(text, first, after, indent)


def run(steps, **shell):
    """Run commands with prompts in one shell; return each with its lines."""
    done = subprocess.run(
        ['bash', '-ec', '\n'.join(
            f'{step.text[2:]}\necho {_END}' for step in steps)],
        text=True, timeout=900, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, **shell)
    assert done.returncode == 0, done.stdout
    return [(step, found.splitlines()) for step, found
            in zip(steps, done.stdout.split(f'{_END}\n'), strict=False)]


def check(lines, step, found):
    """Compare what a page shows of a command's output with what it prints."""
    shown = lines[step.begin:step.end]
    assert agree(plain(shown), plain(found)), (step.text, shown, found)


def plain(lines):
    """Join the lines without what differs between runs: numbers, ids, line
    breaks and the steps of a plan.
    """
    text = re.sub('(Time of the plan):[^-]*', r'\1 ', '\n'.join(lines))
    text = _NUMBER.sub('0', _ID.sub('ID', text))
    return re.sub(r'\b0 ([um]?s|min)\b', '0 s', ' '.join(
        re.sub('[-+|\u2500-\u257f]+', ' ', text).split()))


def agree(shown, found):
    """Compare texts, where … of the page stands for any text."""
    return re.fullmatch('.*'.join(
        map(re.escape, re.split(' ?… ?', shown))), found)


def text_of(page):
    """Lines of a page, named as in ``install/controller``."""
    return _path(page).read_text().splitlines()


def write(page, lines):
    _path(page).write_text('\n'.join(lines) + '\n')


def _path(page):
    return ROOT / 'doc' / 'source' / f'{page}.rst'
