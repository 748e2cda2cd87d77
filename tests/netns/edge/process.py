# SPDX-License-Identifier: Apache-2.0

"""``virtco-edge`` as its own process inside a hypervisor's namespace."""

import pathlib
import re
import signal
import tempfile
import typing

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
    """The real command with a configuration of its own."""

    def __init__(self, bed, host, directory, link_bps=40e6,
                 constants=CONSTANTS, **options):
        self.bed = bed
        self.host = host
        self.constants = constants
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

    def start(self):
        netns = self.bed.ns(self.host)
        arguments = ['--config-file', str(self.config)]
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

    def nft(self, *options):
        """The rules, without what packets added to sets."""
        shown = beds.run('nft', *options, 'list', 'ruleset',
                         netns=self.bed.ns(self.host))
        return re.sub(r'\n\s*elements = \{[^}]*\bexpires\b[^}]*\}', '', shown)
