# SPDX-License-Identifier: Apache-2.0

"""An agent that is killed and started again under 18 transfers and a stream.

The transfers are paced below their classes' rates, so that no queue fills:
what is dropped or sent again was lost to the restart.
"""

import os
import pwd
import signal

from tests import patience
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import datagrams
from tests.netns.edge import policies
from tests.netns.edge import proc
from tests.netns.edge import process

LINK_BPS = 40e6
_PACED_BPS = 1e6
_STREAM_BPS = 2e6
_GROUPS, _EACH = 3, 6


class Site:
    """Three coflows of six transfers each, and the stream's."""

    def __init__(self, directory):
        # Others may search it.
        directory.chmod(0o755)
        state = directory / 'state'
        state.mkdir()
        os.chown(state, pwd.getpwnam('nobody').pw_uid, -1)
        self.bed = beds.Bed(2)
        self.edge = self.controller = None
        try:
            self._senders = [self.bed.add_vm('h1')
                             for _ in range(_GROUPS + 1)]
            self._sinks = [self.bed.add_vm('h2') for _ in range(_GROUPS + 1)]
            self.controller = controllers.Controller(self.bed.ns('h1'))
            self.generation = 0
            self.edge = process.EdgeProcess(
                self.bed, 'h1', directory, LINK_BPS, user='nobody',
                helper_user='daemon', audit_interval_s=3600)
            self.change()
            self.start()
        except BaseException:
            self.close()
            raise

    def close(self):
        if self.edge is not None:
            self.edge.stop()
        if self.controller is not None:
            self.controller.stop()
        self.bed.close()

    def change(self):
        """Another policy: each second one has other rates, and a coflow more.
        """
        self.generation += 1
        odd = self.generation % 2
        builder = policies.PolicyBuilder('h1', LINK_BPS, self.generation)
        pairs = list(zip(self._senders, self._sinks, strict=True))
        for index, (src, dst) in enumerate(pairs):
            builder.coflow(f'C{index}', 8.5e6 + (odd if index else 0) * 3e5,
                           [(src, dst, 1)])
        if odd:
            # Its flow is nobody's.
            builder.coflow('C9', 1e6, [(*pairs[0], 1)], port=9)
        self.controller.set_policy(builder.build().to_dict())

    def start(self):
        """Start the agent, and wait until it enforces the newest policy."""
        self.edge.start()
        self.wait()

    def wait(self):
        seen = len(self.controller.reports)
        try:
            beds.wait_for(lambda: any(
                report['applied_generation'] == self.generation
                and report['health'] == 'ok' for report
                in self.controller.reports[seen:]), 60, 'enforcement')
        except AssertionError as error:
            raise AssertionError(
                f'{error}: {self.edge.log()[-2000:]}') from error

    def kill(self, helper):
        """The agent with its helper, or the helper alone."""
        pid = self.edge.process.pid
        if helper:
            own, = proc.children(pid)
            os.kill(own, signal.SIGKILL)
            # Without it the agent ends by itself.
            patience.wait_end(self.edge.process)
        self.edge.stop(signal.SIGKILL)

    def drops(self):
        """Packets that the classes and the devices on the way dropped."""
        found = 0
        for netns, dev in ((self.bed.ns('h1'), 'uplink0'),
                           (self.bed.core, 'ch1'), (self.bed.core, 'ch2'),
                           (self.bed.ns('h2'), 'uplink0')):
            found += _dropped(netns, dev)
        return found

    def run(self, times):
        """Kill and start again so often; what was lost meanwhile.

        Each second time the helper, with another policy on the way.
        """
        flows = [beds.Flow(src, dst, 5001 + number, pacing_bps=_PACED_BPS)
                 for src, dst in list(zip(self._senders, self._sinks,
                                          strict=True))[:_GROUPS]
                 for number in range(_EACH)]
        stream = datagrams.Stream(self._senders[-1], self._sinks[-1],
                                  _STREAM_BPS)
        with stream:
            for flow in flows:
                flow.start()
            beds.wait_for(lambda: all(flow.now_s() > 1.5 for flow in flows))
            before = self.drops(), _retransmits(flows)
            for number in range(times):
                self.kill(helper=number % 2)
                self.change()
                self.start()
            after = self.drops(), _retransmits(flows)
        for flow in flows:
            flow.close()
        return {'kills': times, 'datagrams': stream.sent,
                'datagrams_lost': stream.lost,
                'drops': after[0] - before[0],
                'segments_sent_again': after[1] - before[1]}


def _retransmits(flows):
    return sum(flow.total_retransmits() for flow in flows)


def _dropped(netns, dev):
    def read():
        with open('/proc/thread-self/net/dev') as file:
            fields = next(line.split() for line in file
                          if line.strip().startswith(f'{dev}:'))
        return int(fields[4]) + int(fields[12])

    text = beds.run('tc', '-s', 'qdisc', 'show', 'dev', dev, netns=netns)
    words = text.replace('(', ' ').replace(',', ' ').split()
    return beds.in_netns(netns, read) + sum(
        int(words[index + 1]) for index, word in enumerate(words)
        if word == 'dropped')
