# SPDX-License-Identifier: Apache-2.0

"""A Debian 12 machine of its own: its root, its systemd, its network."""

import os
import pathlib
import subprocess
import time

ROOT = pathlib.Path(__file__).parents[2]
_PACKAGES = 'systemd,systemd-sysv,dbus,ca-certificates,python3,curl,openssl'
_BOOT_S = 300.0


class Machine:
    """A container of systemd-nspawn.

    It has this machine's network while packages are installed, and none but
    its own devices from boot on.
    """

    def __init__(self, directory):
        self.root = directory / 'root'
        self._directory = directory
        self._container = None

    def install(self, mirror, addresses):
        """Debian's own packages and the source.

        :param addresses: what will be its devices' at boot, by device.
        """
        _run('debootstrap', '--variant=minbase', f'--include={_PACKAGES}',
             'bookworm', str(self.root), mirror)
        for name in ('sources.list', 'sources.list.d', 'apt.conf.d'):
            if (own := pathlib.Path('/etc/apt', name)).exists():
                _run('cp', '-aT', str(own), str(self.root / 'etc/apt' / name))
        _run('git', 'clone', '-q', str(ROOT),
             str(self.root / 'usr/src/virtco'))
        # Services wait for the last step of the page, as on a machine whose
        # administrator starts them.
        policy = self.root / 'usr/sbin/policy-rc.d'
        policy.write_text('#!/bin/sh\nexit 101\n')
        policy.chmod(0o755)
        network = self.root / 'etc/systemd/network'
        for device, address in addresses.items():
            (network / f'{device}.netdev').write_text(
                f'[NetDev]\nName={device}\nKind=veth\n'
                f'[Peer]\nName=peer-{device}\n')
            (network / f'{device}.network').write_text(
                f'[Match]\nName={device}\n[Network]\nAddress={address}/24\n')
        (network / 'peers.network').write_text(
            '[Match]\nName=peer-*\n[Network]\nLinkLocalAddressing=ipv6\n')
        _run('systemctl', f'--root={self.root}', 'enable', 'systemd-networkd')

    def prepare(self, script):
        """Run a script before boot, with this machine's network."""
        # Where this machine's pip finds packages, so does that one's.
        pip = [f'--setenv={name}={value}' for name, value
               in os.environ.items() if name.startswith('PIP_')
               or name.lower().endswith('_proxy')]
        binds = [f'--bind-ro={path}' for path in (
            '/etc/pip.conf', '/etc/ssl/certs/ca-certificates.crt',
            os.environ.get('PIP_FIND_LINKS', '')) if path
            and pathlib.Path(path).exists()]
        _run('systemd-nspawn', '-q', '--register=no', '--keep-unit',
             '--resolv-conf=bind-host', *binds, *pip, '-D', str(self.root),
             'bash', '-euo', 'pipefail', '-c', script)

    def boot(self):
        """:raises TimeoutError: when systemd is not up in time."""
        log = (self._directory / 'boot.log').open('w')
        self._container = subprocess.Popen(
            ['systemd-nspawn', '-q', '--register=no', '--keep-unit',
             '--private-network', '--console=pipe', '--boot', '-D',
             str(self.root)], stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT)
        end_s = time.monotonic() + _BOOT_S
        while True:
            try:
                state = self.run('systemctl is-system-running || true')
                if state.strip() in ('running', 'degraded'):
                    return
            except (AssertionError, StopIteration):
                state = 'no systemd yet'
            if time.monotonic() > end_s:
                raise TimeoutError(f'after {_BOOT_S:g} s: {state}')
            time.sleep(0.2)

    def run(self, script):
        """Run a script in the booted machine; what it printed."""
        leader = next(self._leaders())
        return _run('nsenter', '-t', str(leader), '-a', '--wdns=/root', 'env',
                    '-i', 'PATH=/usr/sbin:/usr/bin:/sbin:/bin', 'HOME=/root',
                    'bash', '-euo', 'pipefail', '-c', script)

    def write(self, path, text):
        file = self.root / path.lstrip('/')
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def end(self):
        if self._container is not None:
            self._container.terminate()
            try:
                self._container.wait(30)
            except subprocess.TimeoutExpired:
                self._container.kill()
                self._container.wait()

    def _leaders(self):
        """Its first process."""
        children = pathlib.Path(
            f'/proc/{self._container.pid}/task/{self._container.pid}/children')
        return iter(children.read_text().split())


def _run(*argv):
    done = subprocess.run(argv, text=True, capture_output=True)
    if done.returncode:
        raise AssertionError(
            f'{" ".join(argv)[-2000:]}\nended with {done.returncode}\n'
            f'{done.stdout[-4000:]}{done.stderr[-4000:]}')
    return done.stdout
