# SPDX-License-Identifier: Apache-2.0

"""The live page in Chromium, over a controller with live coflows.

VIRTCO_TEST_PICTURES names a directory for the pictures of the documentation.
"""

import os
import pathlib
import shutil
import time

import pytest
import requests

from tests.functional.controller import harness

api = pytest.importorskip('playwright.sync_api')
CHROMIUM = shutil.which('chromium')
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason='no Chromium')

WIDTHS = (1280, 400)
PAIR = '{"n": 2, "flows": [[0, 1, "%s"], [1, 0, "%s"]]}'
#: What a tenant may call a coflow; pictures show a decent name.
SCRIPT = ('nightly' if os.environ.get('VIRTCO_TEST_PICTURES') else
          '<script>throw Error("run")</script><img src=x onerror=alert(1)>')
#: Groups of two VMs on two hosts, with what each VM sends to the other.
GROUPS = {'shuffle': '900MB', 'gradients': '400MB', 'copy': '50MB',
          SCRIPT: '200MB', 'backup': '2GB'}
FULL = pytest.mark.full(
    reason='Chromium takes seconds for each',
    still='functional/controller/test_browser.py::'
          'test_the_table_shows_what_the_api_says')


@pytest.fixture(scope='module')
def controller(tmp_path_factory):
    """Five groups on two hosts: one is done, one planned, three send."""
    with harness.running(tmp_path_factory.mktemp('ui'),
                         {'api': {'ui': True}}) as found:
        fill(found)
        yield found


def fill(controller):
    tenant = controller.cloud = controller.tenant()
    tenant.host = lambda name: name.replace('h', 'compute')
    tenant.name = lambda host: host
    vms = {'compute0': [], 'compute1': []}
    for i, (name, size) in enumerate(GROUPS.items()):
        rows = [10 * i, 10 * i + 1]
        for row, number in enumerate(rows):
            host = tenant.place(
                number, name, PAIR % (size, size), launch_index=row,
                num_instances=2, hosts={'h0': 16, 'h1': 16}, server_group={
                    'policy': 'anti-affinity', 'members': rows,
                    'hosts': []})['host']
            if name != 'backup':
                vms[host].append(number)
                tenant.notify('instance.create.end', number,
                              host=host.replace('compute', 'h'))
    controller.edges = [harness.Edge(tenant, host, numbers, 1e9)
                        for host, numbers in vms.items()]
    for edge in controller.edges:
        edge.report()
        harness.wait_for(lambda: len(edge.policy()['classes']) == 4)
    for name, part in (('shuffle', 0.5), ('gradients', 0.3), ('copy', 0.4)):
        send(controller, name, part)
    harness.wait_for(lambda: tenant.coflow('shuffle')['first_byte'])
    send(controller, 'copy', 0.6)
    harness.wait_for(lambda: tenant.coflow('copy')['state'] == 'done')


def send(controller, name, part):
    """Count a part of a coflow's bytes on the wire."""
    found = controller.cloud.coflow(name)
    for edge in controller.edges:
        edge.count(found['id'], 1.05 * part * found['size_bytes'] / 2)
        edge.report()


@pytest.fixture(scope='module')
def chromium(controller):
    with api.sync_playwright() as playwright:
        found = playwright.chromium.launch(
            executable_path=CHROMIUM, args=['--no-sandbox'])
        yield found
        found.close()


@pytest.fixture
def visit(chromium, controller):
    """Open the page; nothing that it does may fail."""
    wrong, contexts = [], []

    def visit(view='', width=1280, prepare=lambda page: None,
              allowed=(), **options):
        context = chromium.new_context(
            viewport={'width': width, 'height': 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on('console', lambda said: wrong.append(said.text)
                if said.type in ('error', 'warning') and not any(
                    one in said.text for one in allowed) else None)
        page.on('pageerror', lambda error: wrong.append(str(error)))
        page.on('dialog', lambda dialog: wrong.append(dialog.message))
        page.on('request', lambda sent: wrong.append(sent.url)
                if not sent.url.startswith((controller.url, 'data:'))
                else None)
        prepare(page)
        page.goto(f'{controller.url}/ui/{view}')
        return page

    yield visit
    for context in contexts:
        context.close()
    assert wrong == []


def picture(page, name):
    home = os.environ.get('VIRTCO_TEST_PICTURES')
    if home:
        page.screenshot(path=pathlib.Path(home) / f'ui-{name}.png',
                        full_page=True)


def wait_rows(page, n_rows=len(GROUPS)):
    page.wait_for_function(
        'n => document.querySelectorAll("tr[data-id]").length === n',
        arg=n_rows)


def assert_fits(page):
    """No part of the page is beyond its right edge."""
    assert page.evaluate('document.documentElement.scrollWidth'
                         ' <= document.documentElement.clientWidth')


def id_of(controller, name):
    return controller.cloud.coflow(name)['id']


def host_of(page):
    return page.locator('[data-host="compute0"]')


@pytest.mark.parametrize('width', WIDTHS)
def test_the_table_shows_what_the_api_says(visit, controller, width):
    page = visit(width=width)
    wait_rows(page)
    # Rates and rests change with time; these do not.
    for found in controller.call('GET', '/v1/coflows')['coflows']:
        row = page.locator(f'tr[data-id="{found["id"]}"]')
        texts = [text.strip() for text in row.locator('th, td')
                 .all_text_contents()]
        assert texts[:2] == [found['name'], found['state']]
        part = 100 * found['sent_bytes'] / found['size_bytes']
        assert number(texts[2]) == pytest.approx(part, abs=0.5)
        assert number(texts[5]) == pytest.approx(found['cct_s'], rel=0.006)
        if found['state'] == 'done':
            assert number(texts[6]) == pytest.approx(
                found['measured_cct_s'], rel=0.006)
        else:
            assert texts[6] == '–'
        assert row.locator('.plan').is_visible()
    assert page.inner_text('#status') == 'live'
    assert_fits(page)
    picture(page, f'coflows-{width}')


@FULL
def test_retired_coflows_are_asked_for_where_they_are_shown(visit):
    page, asked = visit(), []
    wait_rows(page)
    page.on('request', lambda sent: asked.append(sent.url))
    for states, retired in (('all', 'true'), ('live', 'false')):
        page.locator('select').first.select_option(states)
        del asked[:]
        harness.wait_for(lambda: page.wait_for_timeout(50) or [
            url for url in asked if f'&retired={retired}' in url])


def number(text):
    return float(text.rstrip(' s%'))


@FULL
def test_bytes_that_are_counted_show_by_themselves(visit, controller):
    page = visit()
    wait_rows(page)
    coflow_id = id_of(controller, 'gradients')
    cell = page.locator(f'tr[data-id="{coflow_id}"] td').nth(1)
    before = cell.text_content()
    send(controller, 'gradients', 0.1)
    harness.wait_for(lambda: (page.wait_for_timeout(50) or
                              cell.text_content() != before))
    part = controller.cloud.coflow('gradients')
    assert number(cell.text_content()) == pytest.approx(
        100 * part['sent_bytes'] / part['size_bytes'], abs=0.5)


@FULL
@pytest.mark.parametrize('fail', [
    lambda route: route.abort(),
    lambda route: route.fulfill(status=503, body='<html>by haproxy</html>')])
def test_an_outage_is_told_until_the_next_answer(visit, fail):
    page = visit(allowed=('ERR_FAILED', '503'))
    status = page.locator('#status')
    status.filter(has_text='live').wait_for()
    page.route('**/v1/**', fail)
    status.filter(has_text='no connection; trying again').wait_for()
    page.unroute('**/v1/**')
    status.filter(has_text='live').wait_for()


@FULL
@pytest.mark.parametrize('width', WIDTHS)
def test_a_coflow_and_why_it_is_where_it_is(visit, controller, width):
    found = controller.cloud.coflow('gradients')
    page = visit(f'#/coflow/{found["id"]}', width)
    page.get_by_role('button', name='Explain row 1').click()
    page.get_by_text('Placement of row 1').wait_for()
    told = controller.call('GET', f'/v1/placements/'
                           f'{controller.cloud.instance(11)}/explanation')
    page.get_by_text(told['why'], exact=True).wait_for()
    for reason in told['reasons'][:1]:
        assert page.get_by_text(reason['text'].split(':')[0]).count()
    shown = controller.call('GET', f'/v1/coflows/{found["id"]}')
    listed = page.locator('section', has_text='Who waits').locator('li')
    assert listed.count() == len(shown['waits_for']) > 0
    flows = page.get_by_role('table', name='Flows').locator('tbody tr')
    assert flows.locator('td').nth(1).text_content() == 'compute1'
    assert_fits(page)
    picture(page, f'coflow-{width}')


@FULL
def test_a_host_without_an_edge_module_hides_no_coflow(visit, controller):
    def prepare(page):
        page.route('**/v1/hosts/compute1', lambda route: route.fulfill(
            status=404, json={'error': {'detail': 'not found'}}))

    page = visit(f'#/coflow/{id_of(controller, "gradients")}',
                 prepare=prepare, allowed=('404',))
    flows = page.get_by_role('table', name='Flows').locator('tbody tr')
    flows.first.wait_for()
    assert flows.locator('td').first.text_content() == 'compute0'
    assert flows.count() == 1


def _keep_sending(controller):
    """Report 0.2 Gbit/s out of each host for seven seconds."""
    for _ in range(14):
        send(controller, 'shuffle', 0.01)
        send(controller, 'gradients', 0.005)
        time.sleep(0.5)


def _use(controller):
    """Text of the first rack's uplink by the API."""
    uplink = controller.call('GET', '/v1/topology')['uplinks'][0]
    up_mbps, down_mbps = (uplink[f'observed_{way}_bps'] / 1e6
                          for way in ('up', 'down'))
    assert min(up_mbps, down_mbps) > 100
    return (f'rack0 1 host; coflows up {up_mbps:.3g} Mbit/s of 10 Gbit/s, '
            f'down {down_mbps:.3g} Mbit/s of 10 Gbit/s; ')


@FULL
@pytest.mark.parametrize('width', WIDTHS)
def test_the_network_and_a_host(visit, controller, width):
    tree = {'planes': [{'name': 'front-end', 'levels': [{'name': 'rack'}],
                        'nodes': [{'name': f'rack{i}', 'uplink': '10Gbit',
                                   'hosts': f'compute{i}'}
                                  for i in range(2)]}]}
    controller.call('PUT', '/v1/topology', tree)
    _keep_sending(controller)
    page = visit('#/network', width)
    host_of(page).wait_for()
    shown = page.locator('[data-switch=rack0]')
    harness.wait_for(lambda: _use(controller) in shown.text_content())
    page.get_by_label('Colour by').select_option('measured')
    shown.get_by_text('carries up 10 Gbit/s of 10 Gbit/s, down').wait_for()
    page.get_by_label('Colour by').select_option('used')
    assert 'of 1 Gbit/s' in host_of(page).text_content()
    assert_fits(page)
    picture(page, f'network-{width}')
    host_of(page).locator('a').click()
    rows = page.get_by_role('table', name='Classes').locator('tbody tr')
    rows.first.wait_for()
    harness.wait_for(lambda: [
        row.locator('th, td').all_text_contents()[:3]
        for row in rows.all()] == [
            [shown['minor'], shown['name'], str(shown['prio'])]
            for shown in controller.call('GET', '/v1/hosts/compute0')[
                'classes']])
    assert page.locator('.chart canvas').count() == 1
    assert_fits(page)
    picture(page, f'host-{width}')


@FULL
def test_a_name_is_never_run(visit, controller):
    page = visit()
    wait_rows(page)
    page.get_by_role('link', name=SCRIPT).click()
    page.get_by_role('heading', name=f'Coflow {SCRIPT}').wait_for()
    assert page.locator('main script, main img').count() == 0


@FULL
def test_the_keyboard_is_enough(visit, controller):
    page = visit()
    wait_rows(page)
    for _ in range(20):
        page.keyboard.press('Tab')
        if page.evaluate('document.activeElement.closest("tr[data-id]")'):
            break
    page.keyboard.press('Enter')
    page.get_by_role('heading', name='Who waits for whom').wait_for()
    assert page.evaluate('document.activeElement.tagName') == 'H1'
    for table in page.get_by_role('table').all():
        assert table.get_attribute('aria-label')
        assert table.locator('th[scope=col]').count()


def spoken(page):
    """Role, name and whether the keyboard gets there of each node that a
    screen reader is given.
    """
    tree = page.context.new_cdp_session(page).send(
        'Accessibility.getFullAXTree')
    return [(node['role']['value'], node.get('name', {}).get('value', ''),
             any(one['name'] == 'focusable' and one['value']['value']
                 for one in node.get('properties', ())))
            for node in tree['nodes'] if not node['ignored']]


@FULL
@pytest.mark.parametrize(('view', 'heading'), [
    ('coflows', 'Coflows'), ('network', 'Network'),
    ('coflow', f'Coflow {SCRIPT}'), ('host', 'Host compute0')])
def test_a_screen_reader_is_told_what_is_shown(visit, controller, view,
                                               heading):
    name = {'coflow': id_of(controller, SCRIPT), 'host': 'compute0'}
    page = visit(f'#/{view}/{name.get(view, "")}')
    page.locator('main [data-id], main [data-host], main tbody tr'
                 ).first.wait_for()
    page.locator('#status', has_text='live').wait_for()
    told = spoken(page)
    by_role = {role: [name for its, name, _ in told if its == role]
               for role, _, _ in told}
    assert [name for role, name, _ in told if role == 'heading'][0] == heading
    assert by_role['navigation'] == ['Views'] and len(by_role['main']) == 1
    assert by_role['status']
    # Nothing that the keyboard reaches is without a name.
    assert [role for role, name, is_reached in told if is_reached
            and not name and role not in ('RootWebArea', 'main')] == []
    words = ' '.join(name for _, name, _ in told).split()
    for shown in page.locator('main :is(th, td):visible:not([aria-hidden] *)'
                              ).all():
        assert set(shown.inner_text().split()) <= set(words)
    assert all(by_role.get('table', ())) and all(by_role.get('image', ()))


@FULL
@pytest.mark.parametrize('scheme', ['light', 'dark'])
@pytest.mark.parametrize('view', ['coflows', 'network', 'coflow', 'host'])
def test_texts_have_contrast(visit, controller, scheme, view):
    name = {'coflow': id_of(controller, 'shuffle'), 'host': 'compute0'}
    page = visit(f'#/{view}/{name.get(view, "")}', color_scheme=scheme)
    page.locator('main [data-id], main [data-host], main tbody tr'
                 ).first.wait_for()
    assert page.evaluate(CONTRASTS) >= 4.5
    if view == 'coflows':
        picture(page, f'coflows-{scheme}')


#: The least contrast of a text by WCAG 2.
CONTRASTS = '''() => {
  const numbers = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = (text) => numbers(text).slice(0, 3).map((part) => part / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const back = (one) => {
    const found = getComputedStyle(one).backgroundColor;
    return numbers(found)[3] === 0 ? back(one.parentElement) : found;
  };
  const ratio = (one) => {
    const both = [light(getComputedStyle(one).color), light(back(one))];
    return (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
  };
  return Math.min(...[...document.querySelectorAll('body *')].filter((one) =>
    one.checkVisibility() && [...one.childNodes].some((node) =>
      node.nodeType === 3 && node.data.trim())).map(ratio));
}'''


@FULL
def test_a_token_is_asked_for_and_sent(visit, controller):
    def guard(page):
        def answer(route):
            if route.request.headers.get('x-auth-token') == 'good':
                route.continue_()
            else:
                route.fulfill(status=401, body='{}')
        page.route('**/v1/**', answer)

    page = visit(prepare=guard, allowed=('401',))
    for token in ('bad', 'good'):
        page.locator('#token').fill(token)
        page.get_by_role('button', name='Show').click()
        page.wait_for_timeout(200)
    wait_rows(page)
    page.get_by_role('button', name='Forget the token').click()
    page.locator('#token').wait_for()


@FULL
def test_500_coflows_and_1000_hosts_scroll(visit, controller):
    """The answers are made up; drawing and scrolling are real."""
    one = controller.cloud.coflow('shuffle')
    host = controller.call('GET', '/v1/hosts')['hosts'][0]
    coflows = [{**one, 'id': f'id-{i}', 'rank': i} for i in range(500)]
    hosts = [{**host, 'host': f'compute{i}'} for i in range(1000)]

    def many(page):
        page.route('**/v1/coflows*', lambda route: route.fulfill(
            json={'coflows': coflows}))
        page.route('**/v1/hosts', lambda route: route.fulfill(
            json={'hosts': hosts}))

    page = visit(prepare=many)
    wait_rows(page, 500)
    print('ms per frame:', page.evaluate(SCROLL))
    page.get_by_role('link', name='Network').click()
    page.locator('[data-host="compute999"]').wait_for(state='attached')
    frame_ms = page.evaluate(SCROLL)
    print('ms per frame:', frame_ms)
    assert frame_ms < 100


#: Median time of a frame while the page is scrolled from top to end.
SCROLL = '''async () => {
  const times = [];
  let last = await new Promise(requestAnimationFrame);
  for (let i = 0; i < 120; i += 1) {
    window.scrollTo(0, i / 120 * document.documentElement.scrollHeight);
    const now = await new Promise(requestAnimationFrame);
    times.push(now - last);
    last = now;
  }
  return times.sort((a, b) => a - b)[60];
}'''


def test_without_the_option_there_is_no_page(shared):
    assert requests.get(f'{shared.url}/ui/',
                        timeout=harness.DEADLINE_S).status_code == 404
