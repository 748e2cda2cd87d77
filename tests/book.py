# SPDX-License-Identifier: Apache-2.0

"""What a page of the documentation tells to type and to write.

Commands are the lines of ``console`` blocks after a ``#`` prompt, with the
lines that continue them; a block with a caption that is a path is that file.
"""

import dataclasses
import pathlib
import re
from typing import ClassVar

from docutils import core
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.parsers.rst.directives import body

ROOT = pathlib.Path(__file__).parents[1]


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
        (ROOT / 'doc' / 'source' / f'{page}.rst').read_text(),
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
