# SPDX-License-Identifier: Apache-2.0

"""``virtco doctor``: checks every link from a hint to a class."""

import time
from typing import Any

from virtco import exception
from virtco import problems
from virtco.client import v1
from virtco.osc import command_base as base
from virtco.osc import doctor_findings as findings
from virtco.wire import coflow_bodies as coflow_wire
from virtco.wire import health as health_wire
from virtco.wire import host as host_wire


class Doctor(base.Lister):
    """Check every link from a hint to a class, and name remedies

    With a coflow, look at its members and classes as well. With a
    configuration file, test it on this machine before the controller starts.
    Exit code 1 when something does not work. The standard error has the page
    that explains each code.
    """

    row = findings.Finding
    shown = ['code', 'link', 'state', 'finding', 'action']
    example = '--config-file /etc/virtco/virtco.conf'

    arguments = (
        base.argument('coflow', nargs='?', help='Id or name'),
        base.argument('--config-file', metavar='<file>',
                      help='Configuration file of a controller, such as '
                           '/etc/virtco/virtco.conf'))

    def entries(self, args: Any) -> list[findings.Finding]:
        if args.config_file is not None:
            found = _of_file(args.config_file)
        else:
            found = self._of_chain(args)
        self._is_broken = any(one.state == findings.ERROR for one in found)
        self.tell(*map(problems.url, sorted(
            {one.code for one in found} - {''})))
        return found

    def _of_chain(self, args: Any) -> list[findings.Finding]:
        client = self.client
        try:
            answers = _answers(client)
        except exception.ControllerUnavailable as error:
            return [findings.of_problem('VC-050', str(error))]
        found = findings.examine(answers)
        if args.coflow is not None and findings.serves(answers.health):
            coflow = client.call(coflow_wire.SHOW, base.find_coflow(
                client, args.coflow))
            found += findings.examine_coflow(coflow, {
                host: _classes(client, host)
                for host in sorted(filter(None, set(coflow.hosts)))})
        return found

    def run(self, parsed_args: Any) -> int:
        code: int = super().run(parsed_args)
        return code or int(self._is_broken)


def _answers(client: v1.Client) -> findings.Answers:
    health = client.call(health_wire.SHOW)
    if not findings.serves(health):
        return findings.Answers(health, (), (), (), time.time())
    return findings.Answers(
        health, base.coflows_of(client),
        client.call(coflow_wire.EVENTS).events, base.hosts_of(client),
        time.time())


def _classes(client: v1.Client, host: str) -> list[host_wire.Class] | None:
    """List the classes of a host; None where none ever reported of it."""
    try:
        return client.call(host_wire.SHOW, host).classes or []
    except exception.NotFound:
        return None


def _of_file(path: str) -> list[findings.Finding]:
    """Test a controller's configuration, where its packages are."""
    from virtco.cmd import examine
    return [findings.of_problem(one.code, one.finding)
            for one in examine.examine(path)] or [
                findings.Finding('configuration', findings.OK,
                                 'every test passed')]
