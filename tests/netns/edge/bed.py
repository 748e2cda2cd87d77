# SPDX-License-Identifier: Apache-2.0

"""A small emulated data centre for the edge module's own tests.

Hypervisors are network namespaces joined by a core bridge; VMs are namespaces
behind a bridge in their hypervisor. Everything carries one prefix and is
removed with the bed.
"""

import contextlib
import ctypes
import json
import pathlib
import socket
import subprocess
import threading
import time
import uuid

from tests import patience
from tests import run_name
from virtco_lab.emulation import namespaces

_CLONE_NEWNET = 0x40000000
_SO_MAX_PACING_RATE = 47
_libc = ctypes.CDLL(None, use_errno=True)


def run(*command, check=True, netns=None, text=None):
    """Run a command, in a namespace if one is named; its output."""
    if netns is not None:
        command = ('ip', 'netns', 'exec', netns, *command)
    done = subprocess.run([str(part) for part in command], input=text,
                          capture_output=True, text=True)
    if check and done.returncode:
        raise AssertionError(f'{command}: {done.stderr}')
    return done.stdout


def in_netns(name, function, *args):
    """Call a function in a thread that lives in a namespace."""
    box = {}

    def body():
        try:
            with open(f'/run/netns/{name}') as handle:
                if _libc.setns(handle.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), 'setns')
            box['value'] = function(*args)
        except BaseException as error:
            box['error'] = error

    thread = threading.Thread(target=body, daemon=True)
    thread.start()
    thread.join()
    if 'error' in box:
        raise box['error']
    return box.get('value')


def wait_for(condition, limit_s=15, what='a condition'):
    """Poll until a condition is true; its value."""
    return patience.wait_for(condition, what, limit_s)


class Vm:
    """A VM namespace with a port on its hypervisor's bridge."""

    def __init__(self, bed, host, number, ip, bridge, ifindex=None):
        self.uuid = str(uuid.uuid5(uuid.NAMESPACE_OID, f'{host}-{number}'))
        self.host = host
        self.ip = ip
        self.dev = f'tap{number}'
        self.netns = f'{bed.prefix}v{number}'
        run('ip', 'netns', 'add', self.netns)
        bed.namespaces.append(self.netns)
        index = () if ifindex is None else ('index', str(ifindex))
        run('ip', 'link', 'add', 'dev', self.dev, *index, 'netns',
            bed.ns(host), 'type', 'veth', 'peer', 'name', 'eth0', 'netns',
            self.netns)
        run('ip', 'link', 'set', 'dev', self.dev, 'master', bridge, 'up',
            netns=bed.ns(host))
        run('ip', 'link', 'set', 'dev', 'lo', 'up', netns=self.netns)
        run('ip', 'link', 'set', 'dev', 'eth0', 'up', netns=self.netns)
        run('ip', 'addr', 'add', f'{ip}/16', 'dev', 'eth0',
            netns=self.netns)
        last = int(ip.split('.')[-1])
        run('ip', 'addr', 'add', f'fd00::{last:x}/64', 'dev', 'eth0',
            'nodad', netns=self.netns)
        self.ip6 = f'fd00::{last:x}'
        shown, = json.loads(run('ip', '-j', 'link', 'show', 'dev', 'eth0',
                                netns=self.netns))
        self.mac = shown['address']
        self.ips = [self.ip, self.ip6]

    def port(self):
        return {'vm': self.uuid, 'dev': self.dev, 'mac': self.mac,
                'ips': self.ips}


class Bed:
    """Hypervisors h1 … hn, their uplinks and their VMs."""

    def __init__(self, hosts=2):
        self.prefix = run_name.another()
        self.namespaces = []
        self.vms = []
        #: VMs that :meth:`write_ports` leaves out.
        self.unknown = set()
        self.core = f'{self.prefix}core'
        self.hosts = [f'h{index + 1}' for index in range(hosts)]
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def ns(self, host):
        return f'{self.prefix}{host}'

    def _build(self):
        run('ip', 'netns', 'add', self.core)
        self.namespaces.append(self.core)
        run('ip', 'link', 'add', 'dev', 'brc', 'type', 'bridge',
            netns=self.core)
        run('ip', 'link', 'set', 'dev', 'brc', 'up', netns=self.core)
        for host in self.hosts:
            netns = self.ns(host)
            run('ip', 'netns', 'add', netns)
            self.namespaces.append(netns)
            run('ip', 'link', 'set', 'dev', 'lo', 'up', netns=netns)
            run('ip', 'link', 'add', 'dev', 'brv', 'type', 'bridge',
                netns=netns)
            run('ip', 'link', 'set', 'dev', 'brv', 'up', netns=netns)
            self.add_uplink(host)
            for name in ('iptables', 'ip6tables'):
                # Where the kernel has it, it drops what is malformed.
                run('sysctl', '-w', f'net.bridge.bridge-nf-call-{name}=0',
                    netns=netns, check=False)

    def add_uplink(self, host):
        """Join a hypervisor's bridge to the core."""
        netns = self.ns(host)
        run('ip', 'link', 'add', 'dev', f'c{host}', 'netns', self.core,
            'type', 'veth', 'peer', 'name', 'uplink0', 'netns', netns)
        run('ip', 'link', 'set', 'dev', f'c{host}', 'master', 'brc', 'up',
            netns=self.core)
        run('ip', 'link', 'set', 'dev', 'uplink0', 'master', 'brv', 'up',
            netns=netns)

    def add_vm(self, host, ip=None, bridge='brv', ifindex=None):
        number = len(self.vms) + 1
        vm = Vm(self, host, number, ip or f'10.77.0.{number}', bridge, ifindex)
        self.vms.append(vm)
        wait_for(lambda: all(map(self._is_forwarding,
                                 (self.ns(host), self.core))), 10,
                 f'bridges that forward for VM {number}')
        return vm

    @staticmethod
    def _is_forwarding(netns):
        """The kernel notices a carrier up to a second late, and bridges drop
        until then; an answer to ARP would come after its next try.
        """
        ports = json.loads(run('bridge', '-j', 'link', 'show', netns=netns)
                           or '[]')
        return all(port['state'] == 'forwarding' for port in ports)

    def add_segment(self, name, kind):
        """A tenant network of its own on every hypervisor.

        :param kind: ``vlan``, ``vxlan`` or ``geneve`` over the uplinks.
        :returns: name of its bridge, None when the kernel lacks the kind.
        """
        if not self.can_make(kind):
            return None
        for index, host in enumerate(self.hosts):
            netns = self.ns(host)
            dev = f'{name}up'
            if kind == 'vlan':
                run('ip', 'link', 'add', 'link', 'uplink0', 'name', dev,
                    'type', 'vlan', 'id', '100', netns=netns)
            else:
                run('ip', 'addr', 'replace', f'192.168.9.{index + 1}/24',
                    'dev', 'brv', netns=netns)
                peer = f'192.168.9.{2 - index}'
                port = ('dstport', '4789') if kind == 'vxlan' else ()
                run('ip', 'link', 'add', 'dev', dev, 'type', kind, 'id', '7',
                    'remote', peer, *port, netns=netns)
            run('ip', 'link', 'add', 'dev', name, 'type', 'bridge',
                netns=netns)
            run('ip', 'link', 'set', 'dev', name, 'up', netns=netns)
            run('ip', 'link', 'set', 'dev', dev, 'master', name, 'up',
                netns=netns)
        return name

    def write_ports(self, host, path):
        rows = [vm.port() for vm in self.vms
                if vm.host == host and vm not in self.unknown]
        path = pathlib.Path(path)
        fresh = path.with_suffix('.new')
        fresh.write_text(json.dumps({'ports': rows}))
        fresh.rename(path)

    def can_make(self, kind):
        link = ('link', 'uplink0') if kind == 'vlan' else ()
        remote = () if kind == 'vlan' else ('remote', '192.0.2.1')
        port = ('dstport', '4789') if kind == 'vxlan' else ()
        try:
            run('ip', 'link', 'add', *link, 'name', 'try0', 'type', kind,
                'id', '9', *remote, *port, netns=self.ns(self.hosts[0]))
        except AssertionError:
            return False
        run('ip', 'link', 'del', 'dev', 'try0',
            netns=self.ns(self.hosts[0]))
        return True

    def close(self):
        for name in reversed(self.namespaces):
            namespaces.unpin(name)
            run('ip', 'netns', 'del', name, check=False)
        self.namespaces = []


def _socket(kind=socket.SOCK_STREAM, family=socket.AF_INET):
    sock = socket.socket(family, kind)
    if kind == socket.SOCK_STREAM:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b'cubic')
    return sock


class Flow:
    """One TCP transfer between two VMs, with its timing and losses.

    :param pacing_bps: a sender slower than its class fills no queue, so that
        every retransmission was caused by something else.
    :ivar received: (seconds since start, bytes so far) samples.
    """

    def __init__(self, src, dst, port=5001, size_bytes=None, ipv6=False,
                 src_ip=None, pacing_bps=None):
        self.family = socket.AF_INET6 if ipv6 else socket.AF_INET
        self.address = (dst.ip6 if ipv6 else dst.ip, port)
        self.size_bytes = size_bytes
        self.samples = []
        self.stop = threading.Event()
        self.done_s = None
        self.error = None
        self.retransmits = 0
        self.listener = in_netns(dst.netns, self._listen)
        self.sender = in_netns(src.netns, _socket, socket.SOCK_STREAM,
                               self.family)
        if src_ip is not None:
            self.sender.bind((src_ip, 0))
        if pacing_bps is not None:
            self.sender.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE,
                                   int(pacing_bps / 8))
        self.sender.settimeout(120)
        self.sender.connect(self.address)
        self.receiver, _ = self.listener.accept()
        self.receiver.settimeout(0.5)
        self.listener.close()
        self.threads = [threading.Thread(target=self._send, daemon=True),
                        threading.Thread(target=self._receive, daemon=True)]

    def _listen(self):
        sock = _socket(family=self.family)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(self.address)
        sock.listen(1)
        sock.settimeout(20)
        return sock

    def start(self):
        self.started_s = time.monotonic()
        for thread in self.threads:
            thread.start()
        return self

    def _send(self):
        left = self.size_bytes
        block = bytes(65536)
        with contextlib.suppress(OSError):
            while not self.stop.is_set() and (left is None or left > 0):
                part = block if left is None else block[:left]
                sent = self.sender.send(part)
                left = None if left is None else left - sent
            self.sender.shutdown(socket.SHUT_WR)

    def _receive(self):
        total = 0
        while not self.stop.is_set():
            try:
                data = self.receiver.recv(1 << 18)
            except TimeoutError:
                continue
            except OSError as error:
                self.error = error
                break
            now_s = time.monotonic() - self.started_s
            if not data:
                self.done_s = now_s
                break
            total += len(data)
            self.samples.append((now_s, total))

    def total_retransmits(self):
        info = self.sender.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO,
                                      104)
        return int.from_bytes(info[100:104], 'little')

    def received_at(self, at_s):
        last = 0
        for when_s, total in list(self.samples):
            if when_s > at_s:
                break
            last = total
        return last

    def rate_bps(self, from_s, to_s):
        """Payload rate between two times since the start."""
        return 8 * (self.received_at(to_s) - self.received_at(from_s)) / (
            to_s - from_s)

    def now_s(self):
        return time.monotonic() - self.started_s

    def close_now(self):
        """Of a connection that was opened and never used."""
        self.sender.close()
        self.receiver.close()

    def close(self):
        self.stop.set()
        self.retransmits = self.total_retransmits()
        for sock in (self.sender, self.receiver):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            if thread.is_alive():
                thread.join()
        self.sender.close()
        self.receiver.close()


def measure(flows, warm_up_s=1.0, for_s=2.5):
    """Payload rates of flows that run together, in bits per second."""
    for flow in flows:
        flow.start()
    base_s = flows[0].started_s
    time.sleep(warm_up_s + for_s)
    rates = []
    for flow in flows:
        shift_s = base_s - flow.started_s
        rates.append(flow.rate_bps(warm_up_s + shift_s,
                                   warm_up_s + for_s + shift_s))
    for flow in flows:
        flow.close()
    return rates
