# SPDX-License-Identifier: Apache-2.0

"""The evaluation as a PDF to print: the page, its tables, and the plots.

The page is the documentation's. Sphinx's roles become plain text, and each
table of a recorded figure is followed by its plot.
"""

import pathlib
import re

import docutils.core
import docutils.nodes
import docutils.parsers.rst.roles

from virtco import exception
from virtco_lab.sim.figures import index
from virtco_lab.sim.figures import plots
from virtco_lab.sim.figures import record
from virtco_lab.sim.figures import samples

_PAGE = 'evaluation.rst'
_ROLES = ('doc', 'ref', 'numref', 'term', 'file', 'option', 'envvar',
          'program', 'command', 'mod', 'class', 'func', 'meth', 'data', 'attr')
_INCLUDE = re.compile(r'^\.\. include:: evaluation/([\w-]+)\.inc$', re.M)
_TARGET = re.compile(r'^(.*?)\s*<[^>]*>$', re.S)
_STYLE = """
@page { size: A4; margin: 16mm 14mm;
        @bottom-center { content: counter(page); font-size: 8pt } }
body { font: 9pt/1.35 "DejaVu Sans", sans-serif }
h1 { font-size: 17pt } h2 { font-size: 13pt } h3 { font-size: 11pt }
h1, h2, h3 { page-break-after: avoid }
table { border-collapse: collapse; width: 100%; font-size: 6.2pt;
        margin: 2mm 0 }
td, th { border: 0.4pt solid #999; padding: 0.5mm 0.8mm; vertical-align: top;
         overflow-wrap: break-word }
td p, th p { margin: 0 }
tr { page-break-inside: avoid }
pre, tt, code { font: 7.5pt "DejaVu Sans Mono", monospace;
                white-space: pre-wrap; overflow-wrap: anywhere }
table tt, table code { font-size: 5.8pt }
img { display: block; margin: 0 auto; max-width: 100%; max-height: 78mm }
a { color: inherit; text-decoration: none }
"""


def write(path: pathlib.Path, directory: pathlib.Path,
          scratch: pathlib.Path) -> int:
    """Make the PDF; returns the number of pages.

    :param directory: directory of the records; the page is in the one above.
    :param scratch: a directory for the plots.
    :raises virtco.exception.Invalid: without the documentation's sources, or
        without the library that WeasyPrint draws with.
    """
    try:
        import weasyprint
    except OSError as error:
        raise exception.Invalid(field='--pdf', value=path, limit=(
            f'a machine with Pango, libpangoft2-1.0-0 ({error})'
        )) from error
    page = directory.parent / _PAGE
    try:
        source = page.read_text(encoding='utf-8')
    except OSError as error:
        raise exception.Invalid(field='page', value=page, limit=(
            f'the sources of the documentation ({error.strerror})'
        )) from error
    html = _html(_with_plots(source, directory, scratch), page)
    printed = weasyprint.HTML(string=html, base_url=str(page)).render(
        stylesheets=[weasyprint.CSS(string=_STYLE)])
    printed.write_pdf(path)
    return len(printed.pages)


def _with_plots(source: str, directory: pathlib.Path,
                scratch: pathlib.Path) -> str:
    def replaced(match: re.Match[str]) -> str:
        figure = index.FIGURES.get(match[1])
        if figure is None or not (directory / f'{match[1]}.json').exists():
            return match[0]
        known = record.read(directory, match[1])
        path = plots.draw(figure.show(known.found, samples.Context(
            shape=known.shape)), scratch)
        return f'{match[0]}\n\n.. image:: {path.as_uri()}'
    return _INCLUDE.sub(replaced, source)


def _html(source: str, page: pathlib.Path) -> str:
    for name in _ROLES:
        docutils.parsers.rst.roles.register_local_role(name, _plain)
    found = docutils.core.publish_string(
        source, source_path=str(page), writer='html5', settings_overrides={
            'stylesheet_path': '', 'embed_stylesheet': False,
            'raw_enabled': False, 'output_encoding': 'unicode',
            # Markup that only Sphinx knows becomes plain text, too.
            'report_level': 4, 'halt_level': 4, 'input_encoding': 'utf-8'})
    return str(found)


def _plain(name: str, rawtext: str, text: str, lineno: int, inliner: object,
           options: object = None, content: object = None
           ) -> tuple[list[docutils.nodes.Node],
                      list[docutils.nodes.system_message]]:
    """Render a reference to another page as its words."""
    match = _TARGET.match(text)
    return [docutils.nodes.emphasis(rawtext, match[1] if match else text)], []
