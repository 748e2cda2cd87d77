# SPDX-License-Identifier: Apache-2.0

"""``virtco-edge`` as its own process inside a hypervisor's namespace."""

import pathlib
import signal
import tempfile
import typing

from edge_module.classify import bpf
from edge_module.classify import nft
from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import pinned
from tests import patience
from tests.netns.edge import bed as beds
from tests.netns.edge import forked


class Done(typing.NamedTuple):
    returncode: int
    stdout: str
    stderr: str


#: So that nothing waits.
CONSTANTS = {'edge_module.shaper.GRACE_S': 0.5,
             'edge_module.reporting.PAIRS_PERIODS': 2,
             'edge_module.talk.TIMEOUT_S': 2.0}


class EdgeProcess:
    """The real command with a configuration of its own.

    :param how: what classifies; nftables does where the BPF file system is not
        where the agent looks for it.
    """

    def __init__(self, bed, host, directory, link_bps=40e6,
                 constants=CONSTANTS, how='bpf', **options):
        self.bed = bed
        self.host = host
        self.how = how
        self.constants = {**constants, **({'edge_module.privileged.pinned.'
                                           'DIRECTORY': '/proc'}
                                          if how == 'nft' else {})}
        self.directory = pathlib.Path(directory)
        self.ports = self.directory / 'ports.json'
        self.config = self.directory / 'edge.conf'
        options = {
            'host': host, 'uplink_dev': 'uplink0',
            'link_egress_bps': link_bps, 'link_margin': 0,
            'ports_file': self.ports,
            'state_dir': self.directory / 'state',
            'controller_url': 'http://127.0.0.1:8791',
            'report_interval_s': 0.1, **options}
        self.config.write_text('[edge]\n' + ''.join(
            f'{key} = {value}\n' for key, value in options.items()))
        self.process = None

    def start(self, writes_ports=True):
        netns = self.bed.ns(self.host)
        arguments = ['--config-file', str(self.config)]
        if writes_ports:
            self.bed.write_ports(self.host, self.ports)
        path = self.directory / 'log'
        path.touch()
        self.process = forked.Popen(netns, arguments, path,
                                    constants=self.constants)
        return self

    def update_ports(self):
        self.bed.write_ports(self.host, self.ports)

    def log(self):
        return (self.directory / 'log').read_text()

    def once(self, *arguments, check=True):
        """Run the command with an option such as --check.

        :returns: its exit code, and what it printed and complained of.
        """
        with tempfile.NamedTemporaryFile() as out, (
                tempfile.NamedTemporaryFile()) as err:
            process = forked.Popen(
                self.bed.ns(self.host), [
                    '--config-file', self.config, *arguments],
                out.name, err.name)
            patience.wait_end(process, 'the end of a command')
            done = Done(process.returncode, out.read().decode(),
                        err.read().decode())
        assert not (check and done.returncode), done.stdout + done.stderr
        return done

    def stop(self, number=signal.SIGTERM):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            patience.wait_end(self.process, 'the end of the agent')
            self.process = None

    def tc(self):
        return beds.run('tc', 'class', 'show', 'dev', 'uplink0',
                        netns=self.bed.ns(self.host))

    def classified(self):
        """Ports and entries of the classification, one a line."""
        found = self._in_netns(self.classifier().dump)
        return '\n'.join((
            *(f'port {dev} {found.own[ifindex]:x}'
              for dev, ifindex in sorted(found.hooks)),
            *(f'{entry.src_ip} to {entry.dst_ip} {minor:x}'
              for entry, minor in sorted(found.entries.items()))))

    def pins(self):
        """Number by name of all that classifies; what is made anew has
        another one.
        """
        def read():
            return {path.name: path.stat().st_ino for path
                    in pinned.Tables().path.iterdir()}
        return self._in_netns(read)

    def unclassify(self):
        """Take the classification away."""
        self._in_netns(self.classifier().remove)

    def classifier(self):
        """One like the agent's."""
        return {'bpf': bpf.BpfClassifier,
                'nft': nft.NftClassifier}[self.how](kernel)

    def _in_netns(self, call):
        return beds.in_netns(self.bed.ns(self.host), call)
