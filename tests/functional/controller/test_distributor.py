# SPDX-License-Identifier: Apache-2.0

"""Policies down and reports up by one connection, with a real controller.

The edge's end is :mod:`edge_module.stream`, or a bare socket for what an edge
module does not do.
"""

import contextlib
import shutil
import signal
import socket
import tempfile
import threading

import msgspec
from oslo_config import cfg
import pytest

from edge_module import edge_options as edge_conf
from edge_module import kept_state
from edge_module import stream
from tests import openssl
from tests.functional.controller import harness
from tests.unit import made
from virtco.wire import frames
from virtco.wire import reports

LINK = {'dev': 'uplink0', 'egress_bps': 1e8, 'ingress_bps': 1e8}
PAIR = '[[0, "10MB"], [0, 0]]'


def report(ports=(), sent_bytes=None, generation=0):
    return msgspec.convert({
        'boot_id': 'b', 'epoch': 'e', 'applied_generation': generation,
        'link': LINK, 'ports': list(ports), 'pairs': [],
        'coflows': [{'coflow_id': name, 'sent_bytes': value}
                    for name, value in (sent_bytes or {}).items()],
        'uplink_sent_bytes': sum((sent_bytes or {}).values()),
        'default_sent_bytes': 0, 'health': 'ok', 'error': None},
        reports.Report)


class Edge:
    """The threads of an agent that talk to the controller, without a kernel.
    """

    def __init__(self, url, host, **options):
        conf = cfg.ConfigOpts()
        edge_conf.register_opts(conf)
        conf([], project='virtco')
        conf.set_override('host', host, 'edge')
        conf.set_override('controller_url', url, 'edge')
        for name, value in options.items():
            conf.set_override(name, value, edge_conf.AUTH)
        self.host = host
        self.generation = 0
        self.stop = threading.Event()
        self.offered = threading.Event()
        self._directory = tempfile.TemporaryDirectory()
        self.link = stream.Link(conf, lambda: self.generation, self.stop,
                                kept_state.StateDir(self._directory.name),
                                self.offered.set)
        self._thread = threading.Thread(target=self.link.run, daemon=True)
        self._thread.start()

    def policy(self, check=lambda policy: True):
        """The next policy that passes, acknowledged."""
        def look():
            self.offered.wait(1.0)
            self.offered.clear()
            found = self.link.take_policy()
            if found is None:
                return None
            self.generation = found.generation
            self.link.say_taken(self.generation)
            return found.policy if check(found.policy) else None

        return harness.wait_for(look, 'the policy')

    def report(self, *args, **kwargs):
        self.link.outbox.put_report(report(*args, generation=self.generation,
                                    **kwargs))

    def close(self):
        self.stop.set()
        self.link.say_taken(self.generation)  # it may wait
        self._thread.join(10)


@pytest.fixture
def connect(request):
    def make(url, host, **options):
        edge = Edge(url, host, **options)
        request.addfinalizer(edge.close)
        return edge
    return make


def shown(controller, host):
    return controller.call('GET', f'/v1/hosts/{host}', status=None)


def is_up(edge):
    return edge.link.is_up


def counted(controller, name):
    return controller.metrics().get(name, 0.0)


def test_a_coflow_over_the_connection(make, connect):
    controller = make()
    assert controller.call('GET', '/v1/distributor')['version'] == (
        frames.VERSION)
    tenant = controller.tenant()
    hosts = tenant.launch(2, matrix=PAIR, hosts={'h0': 1, 'h1': 1})
    edges = {}
    for row, host in enumerate(hosts):
        edges[host] = edge = connect(controller.url, tenant.host(host))
        harness.wait_for(lambda edge=edge: is_up(edge), 'the connection')
        edge.ports = [{'vm': tenant.instance(row), 'dev': f'tap{row}',
                       'mac': '02:00:00:00:00:01', 'ips': [f'10.1.0.{row}']}]
        edge.report(edge.ports)
    sender = edges[hosts[0]]
    policy = sender.policy(lambda found: found['flows'])
    (one,) = policy['classes']
    # The coflow goes on where its edge module refuses what it is told.
    sender.link.say_taken(sender.generation, 'it is no good')
    for sent_bytes in (4e6, 11e6):
        sender.report(sender.ports, {one['coflow_id']: sent_bytes})
        harness.wait_for(lambda sent_bytes=sent_bytes: tenant.coflow()[
            'sent_bytes'] >= sent_bytes * 0.9, 'the report')
    assert sender.policy(lambda found: not found['classes'])
    # The database hears of the end after the edges.
    harness.wait_for(lambda: tenant.coflow()['state'] == 'done', 'the end')
    sender.report(sender.ports, {one['coflow_id']: 11e6})
    harness.wait_for(lambda: shown(controller, sender.host)[
        'applied_generation'] == sender.generation, 'the applied generation')
    assert counted(controller, 'virtco_edge_connections') == 2
    assert counted(controller, 'virtco_policies_refused_total') == 1
    assert not any(
        name.startswith('virtco_edge_connections_refused_total') and value
        for name, value in controller.metrics().items())


def test_it_comes_back_after_a_kill(make, connect):
    first = make()
    url, port = first.url, first.stream_port()
    edge = connect(url, 'h1')
    harness.wait_for(lambda: is_up(edge), 'the connection')
    edge.report()
    before = edge.policy()['generation']
    first.stop(signal.SIGKILL)
    harness.wait_for(lambda: not edge.link.is_up, 'the end')
    second = make({'api': {'port': int(url.rpartition(':')[2])},
                   'distributor': {'port': port}})
    after = edge.policy(lambda found: found['generation'] > before)
    assert after['host'] == 'h1'
    harness.wait_for(lambda: is_up(edge), 'the connection')
    edge.report()
    harness.wait_for(lambda: shown(second, 'h1')['applied_generation']
                     == after['generation'], 'the report')


def test_a_controller_that_stands_still_renews_nothing(make, connect):
    controller = make({'scheduler': {'policy_ttl_s': 1}})
    edge = connect(controller.url, 'h1')
    harness.wait_for(lambda: is_up(edge), 'the connection')
    edge.report()
    edge.policy()
    first_s = edge.link.renewed_s
    harness.wait_for(lambda: edge.link.renewed_s > first_s + 1,
                     'heartbeats')
    controller.process.send_signal(signal.SIGSTOP)
    try:
        harness.wait_for(lambda: not edge.link.is_up, 'its end')
    finally:
        controller.process.send_signal(signal.SIGCONT)
    harness.wait_for(lambda: is_up(edge), 'the connection')


def refusals(edge):
    return edge.link._outage._began_s is not None


def test_a_taken_port_is_no_end(make, connect):
    """Of the controller: Nova is answered."""
    with socket.create_server(('127.0.0.1', 0)) as taken:
        controller = make({'distributor': {'port': taken.getsockname()[1]}},
                          wait=False)
        controller.find_in_log('Ready after')
        controller.wait_port()
    assert 'No edge module can connect' in controller.log_text()
    health = controller.call('GET', '/health', status=503)
    assert not health['parts']['distributor']
    controller.tenant().place(0)
    controller.call('GET', '/v1/distributor', status=404)
    edge = connect(controller.url, 'h1')
    harness.wait_for(lambda: refusals(edge), 'the end of hope')
    assert not is_up(edge)


class Bare:
    """A socket that speaks the protocol as badly as a test wants."""

    def __init__(self, port, **fields):
        self.sock = socket.create_connection(('127.0.0.1', port), timeout=30)
        self._reader = frames.Reader(1 << 28)
        self._messages = []
        if fields:
            self.say('hello', **({'version': frames.VERSION, 'generation': 0}
                                 | fields))

    def say(self, kind, **fields):
        self.sock.sendall(made.frame(kind, **fields))

    def hear(self):
        """The next message; None at the end of the connection."""
        while not self._messages:
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError:
                data = b''
            if not data:
                return None
            self._messages += map(msgspec.json.decode, self._reader.feed(data))
        return self._messages.pop(0)

    def hear_all(self):
        return list(iter(self.hear, None))

    def why(self):
        """Why it is refused; heartbeats may come before."""
        refused, = (message for message in self.hear_all()
                    if message['type'] == 'refused')
        return refused['why']


@pytest.fixture
def port(shared):
    return shared.stream_port()


def test_an_edge_speaks_for_its_own_host_only(shared, port):
    bare = Bare(port, host='a.bare')
    assert bare.hear()['type'] == 'welcome'
    bare.say('measurement', measurement={
        'probe_id': 'p', 'src': 'b.bare', 'dst': 'a.bare', 'rate_bps': 1e9})
    assert 'b.bare' in bare.why()


@pytest.mark.parametrize('data, why', [
    (b'GET / HTTP/1.1\r\n\r\n', 'at most 16384 bytes'),
    (made.frame('heartbeat'), 'one hello, before every other message'),
    (frames.frame(b'[' * 16_000), 'nested'),
    (frames.frame(b'{"type": "hello", "host": NaN}'), 'NaN'),
    (made.frame('hello', version=9, host='h'), 'version: expected 1')])
def test_what_breaks_the_protocol_ends_it(port, data, why):
    bare = Bare(port)
    bare.sock.sendall(data)
    refused = bare.hear()
    assert refused['type'] == 'refused'
    assert why in refused['why']
    assert bare.hear() is None


def test_a_later_connection_takes_the_place_of_one_before(port):
    first = Bare(port, host='twice.bare')
    assert first.hear()['type'] == 'welcome'
    second = Bare(port, host='twice.bare')
    assert second.hear()['type'] == 'welcome'
    assert 'another connection' in first.why()
    second.say('heartbeat')
    assert 'alive' in {second.hear()['type'], second.hear()['type']}


def test_half_open_connections_change_nothing(make, connect):
    controller = make(
        {'distributor': {'max_connections_per_address': 300}},
        constants={'virtco.distribute.server.HELLO_S': 1})
    port = controller.stream_port()
    with contextlib.ExitStack() as stack:
        halves = [stack.enter_context(socket.create_connection(
            ('127.0.0.1', port), timeout=30)) for _ in range(290)]
        halves[0].sendall(b'\0\0')
        edge = connect(controller.url, 'h1')
        harness.wait_for(lambda: is_up(edge), 'the connection')
        edge.report()
        assert edge.policy()['host'] == 'h1'
        for half in halves:
            while half.recv(4096):
                pass


def test_connections_of_one_address_are_limited(make):
    controller = make({'distributor': {'max_connections_per_address': 3}})
    port = controller.stream_port()
    bares = [Bare(port, host=f'h{number}') for number in range(3)]
    assert [bare.hear()['type'] for bare in bares] == ['welcome'] * 3
    with socket.create_connection(('127.0.0.1', port), timeout=30) as more:
        assert more.recv(1) == b''
    bares[0].sock.close()

    def is_free():
        bare = Bare(port, host='h3')
        with contextlib.suppress(OSError):
            return bare.hear()

    harness.wait_for(is_free, 'a place')


@pytest.fixture
def authority(tmp_path):
    return openssl.Authority(tmp_path)


def _with_tls(authority):
    cert, key = authority.sign('127.0.0.1')
    return {'distributor': {'cert_file': cert, 'key_file': key,
                            'client_ca_file': authority.path}}


def test_certificates_say_for_whom_an_edge_speaks(make, connect, authority):
    controller = make(_with_tls(authority))

    def edge(host, name):
        certfile, keyfile = map(str, authority.sign(name))
        return connect(controller.url, host, cafile=str(authority.path),
                       certfile=certfile, keyfile=keyfile)

    good, bad = edge('h1', 'h1'), edge('h1', 'h2')
    harness.wait_for(lambda: is_up(good), 'the connection')
    good.report()
    assert good.policy()['host'] == 'h1'
    harness.wait_for(lambda: refusals(bad), 'a refusal')
    assert not is_up(bad)
    assert ("h1 with a certificate of DNS names ['h2']"
            in controller.log_text())
    # Nobody's certificate is seen here.
    refused = controller.call('GET', '/v1/hosts/h1/policy', status=403)
    assert 'certificate' in refused['error']['detail']


def test_certificates_are_renewed_without_a_restart(make, connect, authority,
                                                    tmp_path):
    """Also the authority: a broken file and then a whole one replace it, with
    all that it signed.
    """
    controller = make(_with_tls(authority))

    def edge(host):
        certfile, keyfile = map(str, authority.sign(host))
        found = connect(controller.url, host, cafile=str(authority.path),
                        certfile=certfile, keyfile=keyfile)
        harness.wait_for(lambda: is_up(found), 'the connection')
        return found

    def is_unusable():
        return counted(controller,
                       'virtco_certificates_unusable{end="server"}')

    before = edge('h1')
    authority.path.write_text('broken')
    (tmp_path / 'next').mkdir()
    port = controller.stream_port()

    def is_told():
        with contextlib.suppress(OSError), socket.create_connection(
                ('127.0.0.1', port), timeout=30):
            return is_unusable()

    harness.wait_for(is_told, 'the error')
    assert is_up(before)
    authority = openssl.Authority(tmp_path / 'next')
    cert, key = authority.sign('127.0.0.1')
    for path in (authority.path, cert, key):
        shutil.copy(path, tmp_path)
    edge('h2')
    assert not is_unusable() and is_up(before)


@pytest.mark.parametrize(('host', 'why'), [
    ('127.0.0.1', 'certificate has expired'),
    ('h1', 'it refused the connection, its log tells why')])
def test_a_certificate_that_has_expired_is_told_until_it_is_renewed(
        make, connect, authority, caplog, host, why):
    controller = make(_with_tls(authority))
    certfile, keyfile = map(str, authority.sign('h1'))
    authority.sign(host, days=-1)
    found = connect(controller.url, 'h1', cafile=str(authority.path),
                    certfile=certfile, keyfile=keyfile)
    harness.wait_for(lambda: why in caplog.text, 'what the edge module logs')
    harness.wait_for(lambda: 'certificate' in controller.log_text(),
                     'what the controller logs')
    authority.sign(host)
    harness.wait_for(lambda: is_up(found), 'the connection')


def test_a_certificate_that_is_none_is_an_error_of_the_start(make, tmp_path):
    path = tmp_path / 'none.pem'
    path.write_text('this is no certificate')
    process = make({'distributor': {'cert_file': path}}, wait=False)
    assert process.wait_end() == 1
    assert '[distributor] cert_file' in process.log_text()


def test_a_generation_that_an_edge_claims_harms_nobody(shared, port):
    bare = Bare(port, host='high.bare', generation=2 ** 62)
    assert bare.hear()['type'] == 'welcome'
    bare.say('report', report=msgspec.to_builtins(report(
        generation=2 ** 62)))
    policy = bare.hear()
    while policy['type'] != 'policy':
        policy = bare.hear()
    assert policy['generation'] < 2 ** 62
