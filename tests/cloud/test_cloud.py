# SPDX-License-Identifier: Apache-2.0

"""A whole OpenStack: up, a group through the real client, down."""

import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

from tests import book
from tests import patience
from tests.cloud import clients

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason='makes namespaces')
_MATRIX = '[[0, "20MB"], [0, 0]]'


def test_every_part_is_up(cloud):
    services = clients.openstack('compute', 'service', 'list')
    assert {(row['Binary'], row['State']) for row in services} == {
        (name, 'up') for name in ('nova-scheduler', 'nova-conductor',
                                  'nova-compute')}
    hosts = clients.openstack('coflow', 'host', 'list')
    assert {row['host'] for row in hosts} == set(cloud.computes)


@pytest.mark.parametrize('page', ['install/cloud', 'install/first-coflow'])
def test_a_page_shows_what_its_commands_print(cloud, page):
    lines = book.text_of(page)
    up, *steps, down = book.follow(lines)
    assert up.text.startswith('# tools/cloud up') and (
        down.text == '# tools/cloud down')
    for step, found in book.run(steps, cwd=book.ROOT):
        book.check(lines, step, found)
    assert clients.openstack('server', 'list', '--all-projects') == []


def test_a_group_is_placed_while_a_controller_is_killed(cloud):
    family = subprocess.run(
        ['pgrep', '-f', f'{cloud.home}/etc/controller0'], text=True,
        capture_output=True).stdout.split()
    assert family
    os.kill(int(family[0]), signal.SIGKILL)
    began_s = time.monotonic()
    clients.run(
        'openstack', 'server', 'create', '--image', 'tiny', '--flavor',
        'slot1', '--network', 'lab', '--min', '2', '--max', '2', '--hint',
        'virtco:coflow=pair', '--hint', f'virtco:tm={_MATRIX}', '--wait',
        'pair')
    servers = clients.openstack('server', 'list', '--all-projects')
    assert [row['Status'] for row in servers] == ['ACTIVE'] * 2
    assert time.monotonic() - began_s < 300
    patience.wait_for(lambda: [
        row for row in clients.openstack('coflow', 'list')
        if row['name'] == 'pair' and row['state'] in ('active', 'done')],
        'the coflow in the table of the other controller')
    for row in servers:
        assert pathlib.Path(
            '/run/netns', cloud.vm_namespace(row['ID'])).exists()


def test_the_live_page_shows_a_project_its_coflows(cloud, tmp_path):
    """With keystone's own tokens, of an operator and of a tenant."""
    playwright = pytest.importorskip('playwright.sync_api')
    chromium = shutil.which('chromium')
    if chromium is None:
        pytest.skip('no Chromium')
    inside = tmp_path / 'chromium'
    inside.write_text(f'#!/bin/sh\nexec ip netns exec {cloud.control} '
                      f'{chromium} "$@"\n')
    inside.chmod(0o755)
    for name, owner in (('mine', 'demo'), ('theirs', 'service')):
        clients.run('openstack', 'coflow', 'create', name, _MATRIX,
                    '--project', owner)
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=str(inside),
                                       args=['--no-sandbox'])
        for user, names in (('demo', {'mine'}), ('admin', {'mine', 'theirs'})):
            page = browser.new_page(ignore_https_errors=True)
            page.goto(f'{cloud.controller_url}/ui/')
            page.locator('#token').fill(clients.run(
                'exec', 'env', f'OS_USERNAME={user}',
                f'OS_PROJECT_NAME={user}', 'openstack', 'token', 'issue',
                '-f', 'value', '-c', 'id').stdout.strip())
            page.get_by_role('button', name='Show').click()
            page.get_by_label('Show').select_option('all')
            page.wait_for_selector('tr[data-id]')
            shown = page.locator('tr[data-id]').all_inner_texts()
            assert names <= {text.split()[0] for text in shown}, shown
            assert ('theirs' in ' '.join(shown)) == ('theirs' in names)
        browser.close()
