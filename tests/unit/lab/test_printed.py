# SPDX-License-Identifier: Apache-2.0

"""The evaluation as one document."""

import shutil

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


def test_a_table_that_is_not_of_its_record_is_named(page, capsys):
    assert command.main(['--write']) == 0
    assert command.main([]) == 0
    stale = record.DIRECTORY / 'statements.inc'
    stale.write_text('something else')
    assert command.main([]) == 1
    assert str(stale) in capsys.readouterr().err


def test_without_the_page_an_error_names_it(page, tmp_path, capsys):
    page.unlink()
    assert command.main(['--write', '--pdf', str(tmp_path / 'no.pdf')]) == 1
    assert str(page) in capsys.readouterr().err
