# SPDX-License-Identifier: Apache-2.0

"""The certificates of the install page, made by its own commands."""

import pathlib
import re
import subprocess

import pytest

PAGE = (pathlib.Path(__file__).parents[2] / 'doc' / 'source' / 'install'
        / 'controller.rst')
LINE = re.compile(r'^   # ((?:openssl|printf|cat) (?:.*\\\n)*.*)',
                  re.MULTILINE)


@pytest.fixture(scope='module')
def home(tmp_path_factory):
    home = tmp_path_factory.mktemp('tls')
    lines = LINE.findall(PAGE.read_text().partition('Certificates')[2])
    subprocess.run(['sh', '-e'], input='\n'.join(lines), text=True, cwd=home,
                   check=True, capture_output=True)
    return home


@pytest.mark.parametrize('authority, name', [
    ('ca', 'server'), ('edges-ca', 'compute-11')])
def test_each_certificate_satisfies_python_313(home, authority, name):
    """Its ssl module verifies strictly unless it is told otherwise."""
    found = subprocess.run(
        ['openssl', 'verify', '-x509_strict', '-CAfile', f'{authority}.pem',
         f'{name}.pem'], cwd=home, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT)
    assert found.stdout == f'{name}.pem: OK\n'
