# SPDX-License-Identifier: Apache-2.0

"""Task pages are followed literally, and show what the commands print.

``python -m tests.functional.controller.test_task_pages`` writes the outputs
into the pages again. A command whose output on the page has ``…`` is compared
and not written: it stands for any text.
"""

import contextlib
import io
import itertools
import os
import pathlib
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from unittest import mock
import uuid

import pytest

from tests import book
from tests.functional.controller import harness
from tests.functional.controller import test_samples as samples
from virtco.osc import shell

#: In this order, by one controller: the last ones change its state.
PAGES = ('admin/looking', 'admin/explain', 'admin/limits',
         'admin/reevaluation', 'user/hints', 'user/hint-command',
         'user/recipes/index', 'admin/settings',
         'admin/topology', 'admin/hosts', 'admin/live-page',
         'admin/processes')
SHADOW_PAGES = ('admin/shadow',)
#: Of the cloud of namespaces, and of the first hypervisor.
INSTALL_PAGES = ('install/cloud', 'install/first-coflow')
EDGE_PAGES = ('install/edge',)
TRAIN_PAGES = ('user/advice',)
HOSTS = ('h1', 'h2', 'h3')
LINK_BPS = 10e9
#: Commands that are run; others need Nova or keystone.
RUN = ('$ virtco ', '$ openstack server delete ', '# tools/cloud virtco ',
       '$ curl ', '# virtco-manage ')


@contextlib.contextmanager
def following(kind=None, mode='enforce'):
    """Yield a function that runs a command and returns its lines.

    :param kind: class of the cloud, by default :class:`Cloud`.
    """
    kind = kind or Cloud
    with (tempfile.TemporaryDirectory() as home,
          samples.running(home, kind.hosts, {
              'api': {'ui': 'true'}, 'placement': {'mode': mode}}
              ) as controller,
          contextlib.chdir(home),
          mock.patch.dict(os.environ, VIRTCO_URL=controller.url,
                          CLIFF_MAX_TERM_WIDTH='72', COLUMNS='72')):
        cloud = kind(controller)
        cloud.begin('planned' if mode == 'enforce' else 'neutral')

        def run(text):
            if text.startswith('openstack server delete '):
                cloud.delete(int(text.rpartition('-')[2]))
                return []
            if not text.startswith(('virtco ', 'tools/')):
                return _in_shell(text, controller)
            cloud.before(text)
            said = io.StringIO()
            with (contextlib.redirect_stdout(said),
                  contextlib.redirect_stderr(said),
                  mock.patch('sys.argv', ['virtco'])):
                shell.main(shlex.split(text.partition('virtco ')[2]))
            return said.getvalue().rstrip().splitlines()

        yield run


def _in_shell(text, controller):
    """Run a command that names the controller by address or file.

    The output names the page's host instead of this machine.
    """
    text = re.sub('^virtco-manage', f'{sys.executable} -m virtco.cmd.manage '
                  f'--config-file {controller.config}', text)
    text = re.sub(r'http://[\w.]+:\d+', controller.url, text)
    found = subprocess.run(['bash', '-c', text], check=True, text=True,
                           stdout=subprocess.PIPE).stdout
    return found.replace(socket.gethostname(), 'controller1').splitlines()


class Cloud(samples.Cloud):
    """Groups ``sort``, from h1 to h2, and ``copy``, from h2 to h3."""

    hosts = HOSTS

    def before(self, text):
        """Change the state of the cloud as the page tells before a command.
        """

    def instance(self, number):
        return str(uuid.uuid5(uuid.NAMESPACE_OID, str(number)))

    def delete(self, number):
        """Delete the last VM of a host that is drained."""
        self.notify('instance.delete.end', number)
        harness.wait_for(lambda: all(
            host['drain'] != 'draining' for host in self.call(
                'GET', '/v1/hosts')['hosts']), 'a host without VMs')

    def begin(self, status):
        """Launch the groups, and one with a hint that is ignored.

        :param status: of the answers to Nova.
        """
        for src, dst in itertools.permutations(HOSTS, 2):
            self.controller.streams.measure(
                src, dst, 0.95 * LINK_BPS, rtt_s=0.0002, loss=0.0,
                method='train')
        edges = [harness.Edge(self, host, [row], LINK_BPS)
                 for row, host in enumerate(HOSTS)]
        for edge in edges:
            edge.report()
        # Room for one VM more on each host.
        for first, name, hosts in ((0, 'sort', {'h1': 1, 'h2': 1}),
                                   (10, 'copy', {'h2': 2, 'h3': 1})):
            for row, host in enumerate(hosts):
                self.place(first + row, name, '[[0, "40GB"], [0, 0]]', status,
                           launch_index=row, num_instances=2, hosts=hosts)
                self.notify('instance.create.end', first + row, host=host)
        self.call('PUT', f'/v1/placements/{self.instance(90)}',
                  harness.placement(90, 'broken', '[[0]', hosts={'h1': 1},
                                    project_id=self.project))
        for edge in edges:
            edge.report()
        if status == 'planned':
            edges[0].wait_class(self.coflow('sort')['id'])
            # A coflow with one VM in place is ranked first, without a rate.
            harness.wait_for(lambda: all(
                self.coflow(name)['rate_bps'] for name in ('sort', 'copy')),
                'rates of both coflows')


class First(Cloud):
    """The cloud of namespaces: its links, slots and first coflow."""

    hosts = tuple(f'compute{number}' for number in range(1, 7))

    def begin(self, _status):
        self.edges = {host: harness.Edge(self, host, link_bps=50e6)
                      for host in self.hosts}
        for edge in self.edges.values():
            edge.report()

    def before(self, text):
        if text.startswith('tools/cloud virtco coflow list'):
            self.launch()
        elif text.startswith('tools/cloud virtco coflow show'):
            self.send()

    def launch(self):
        slots = dict.fromkeys(self.hosts, 2)
        at = [self.place(row, 'first', '[[0, "30MB", "30MB"], [0, 0, 0], '
                         '[0, 0, 0]]', launch_index=row, num_instances=3,
                         hosts=slots)['host'] for row in range(3)]
        for row, host in enumerate(at):
            self.notify('instance.create.end', row, host=host)
            self.edges[host].vms.append(row)
        for edge in self.edges.values():
            edge.report()
        self.sender, self.receiver = self.edges[at[0]], next(
            host for host in at if host != at[0])
        self.sender.wait_class(self.coflow('first')['id'])

    def send(self):
        """Count the bytes of 30 MB of payload at the rate of the uplink."""
        for _ in range(5):
            time.sleep(1)
            self.sender.count(self.coflow('first')['id'], 50e6 / 8,
                              self.receiver)
            self.sender.report()
        self.sender.count(self.coflow('first')['id'], 1e6, self.receiver)
        self.sender.report()
        harness.wait_for(lambda: self.coflow('first')['state'] == 'done')


class FirstHost(Cloud):
    """A cloud with one edge module."""

    hosts = ('compute-11',)

    def begin(self, _status):
        harness.Edge(self, self.hosts[0], link_bps=LINK_BPS).report()


class Train(Cloud):
    """Group ``train``, with slow paths from row 0 to 1 and from row 2 to 3."""

    hosts = ('h0', 'h1', 'h2', 'h3')

    def begin(self, _status):
        for host in self.hosts:
            harness.Edge(self, host).report()
        at = self.launch(
            4, first=1, name='train', matrix='{"pattern": "ring", "n": 4, '
            '"flow_size": "1MB"}', hosts=dict.fromkeys(self.hosts, 1))
        for row, host in enumerate(at, 1):
            harness.Edge(self, host, [row]).report()
        for part in (0.9, 0.95, 0.85):
            for src, dst in itertools.permutations(at, 2):
                is_slow = {src, dst} in (set(at[:2]), set(at[2:]))
                self.controller.streams.measure(
                    src, dst, part * (2e7 if is_slow else 1e8), rtt_s=0.001,
                    loss=0.0, method='train')


def follow(lines, run):
    """Yield each command of virtco with what it prints."""
    for step in book.follow(lines):
        if isinstance(step, book.Step):
            if step.path.startswith('/'):
                continue  # of another machine
            pathlib.Path(step.path).write_text(step.text)
        elif step.text.startswith(RUN):
            yield step, run(step.text[2:])


def check(page, run):
    lines = book.text_of(page)
    for step, found in follow(lines, run):
        book.check(lines, step, found)


@pytest.fixture(scope='module')
def run():
    with following() as found:
        yield found


@pytest.mark.parametrize('page', PAGES)
def test_a_page_shows_what_its_commands_print(page, run):
    check(page, run)


#: Pages by cloud and mode.
OTHERS = [(Cloud, 'shadow', SHADOW_PAGES), (First, 'enforce', INSTALL_PAGES),
          (FirstHost, 'enforce', EDGE_PAGES),
          (Train, 'enforce', TRAIN_PAGES)]


@pytest.mark.parametrize(('kind', 'mode', 'pages'), OTHERS)
def test_pages_about_other_clouds_do_as_well(kind, mode, pages):
    with following(kind, mode) as run:
        for page in pages:
            check(page, run)


def main():
    for kind, mode, pages in ((Cloud, 'enforce', PAGES), *OTHERS):
        with following(kind, mode) as run:
            for page in pages:
                record(page, run)


def record(page, run):
    lines = book.text_of(page)
    for step, found in reversed(list(follow(lines, run))):
        block = lines[step.begin:step.end]
        if not any('…' in line for line in block):
            lines[step.begin:step.end] = [
                (' ' * step.indent + line).rstrip() for line in found]
    book.write(page, lines)


if __name__ == '__main__':
    main()
