# SPDX-License-Identifier: Apache-2.0

"""The evaluation as one document."""

import importlib.abc
import shutil
import sys

import docutils.utils
import pytest

from virtco_lab import printed
from virtco_lab.cmd import report as command
from virtco_lab.sim.figures import record


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A page with one figure, in a directory of its own."""
    records = tmp_path / 'evaluation'
    records.mkdir()
    for suffix in ('json', 'inc'):
        shutil.copy(record.DIRECTORY / f'orchestra-fig15.{suffix}', records)
    path = tmp_path / 'evaluation.rst'
    path.write_text('Title\n=====\n\nSee :doc:`simulator <sim>` and '
                    ':new:`this`.\n\n'
                    '.. include:: evaluation/orchestra-fig15.inc\n')
    monkeypatch.setattr(record, 'DIRECTORY', records)
    return path


def test_a_pdf_has_the_page_its_table_and_its_plot(page, tmp_path):
    made = tmp_path / 'made.pdf'
    scratch = tmp_path / 'scratch'
    assert printed.write(made, record.DIRECTORY, scratch) >= 1
    assert made.read_bytes().startswith(b'%PDF')
    assert [path.name for path in scratch.iterdir()] == [
        'orchestra-fig15.png']
    assert b'/Image' in made.read_bytes()


def test_only_figures_with_a_record_get_a_plot(page, tmp_path):
    source = ''.join(f'.. include:: evaluation/{name}.inc\n' for name in (
        'statements', 'orchestra-fig15', 'orchestra-fig16'))
    found = printed._with_plots(source, record.DIRECTORY, tmp_path / 'plots')
    plot = tmp_path / 'plots' / 'orchestra-fig15.png'
    assert found == (
        '.. include:: evaluation/statements.inc\n'
        '.. include:: evaluation/orchestra-fig15.inc\n\n'
        f'.. image:: {plot.as_uri()}\n'
        '.. include:: evaluation/orchestra-fig16.inc\n')
    assert plot.exists()


def test_references_to_other_pages_become_their_words(page):
    found = printed._html(
        'See :doc:`the simulator <sim>`, :file:`etc` and :new:`this`.\n\n'
        '.. raw:: html\n\n   <script>no</script>\n', page)
    assert '<em>the simulator</em>, <em>etc</em> and' in found
    assert 'sim&gt;' not in found
    # Nothing is loaded or run, and what Sphinx alone knows is no error.
    assert '<script>' not in found
    assert '<style' not in found and '<link' not in found
    assert 'rror' not in found


def test_a_page_that_lacks_a_table_is_not_printed(page):
    with pytest.raises(docutils.utils.SystemMessage, match='no-such.inc'):
        printed._html('.. include:: no-such.inc\n', page)


def test_without_pango_an_error_names_it(page, tmp_path, monkeypatch, capsys):
    class Broken(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name == 'weasyprint':
                raise OSError('cannot load library pango')

    monkeypatch.delitem(sys.modules, 'weasyprint', raising=False)
    monkeypatch.setattr(sys, 'meta_path', [Broken(), *sys.meta_path])
    assert command.main(['--pdf', str(tmp_path / 'no.pdf')]) == 1
    assert 'libpangoft2-1.0-0 (cannot load' in capsys.readouterr().err


def test_how_many_pages_were_printed_is_told(page, monkeypatch, capsys):
    monkeypatch.setattr(printed, 'write', lambda path, *_: 3)
    assert command.main(['--write', '--pdf', 'made.pdf']) == 0
    assert capsys.readouterr().out == 'made.pdf: 3 pages\n'
    assert command.main(['--write']) == 0
    assert capsys.readouterr().out == ''


def test_a_table_that_is_not_of_its_record_is_named(page, capsys):
    table = record.DIRECTORY / 'orchestra-fig15.inc'
    table.unlink()
    assert command.main(['--write']) == 0
    assert table.exists()
    assert command.main([]) == 0
    stale = record.DIRECTORY / 'statements.inc'
    stale.write_text('something else')
    assert command.main([]) == 1
    assert str(stale) in capsys.readouterr().err


def test_without_the_page_an_error_names_it(page, tmp_path, capsys):
    page.unlink()
    assert command.main(['--write', '--pdf', str(tmp_path / 'no.pdf')]) == 1
    assert str(page) in capsys.readouterr().err
