# SPDX-License-Identifier: Apache-2.0

"""``virtco doctor``: every link from a hint to a class, and what to do."""

import time
from typing import Any

from virtco import exception
from virtco.client import v1
from virtco.osc import command_base as base
from virtco.osc import doctor_findings as findings


class Doctor(base.Lister):
    """Check every link from a hint to a class, and say what to do

    With a coflow, look at its members and classes as well. Exit code 1 when
    something does not work.
    """

    row = findings.Finding
    shown = ['link', 'state', 'finding', 'action']

    arguments = (base.argument('coflow', nargs='?', help='Id or name'),)

    def entries(self, args: Any) -> list[findings.Finding]:
        client = self.client
        found = findings.examine(_answers(client))
        if args.coflow is not None:
            coflow = client.coflow(self.find_coflow(args.coflow))
            found += findings.examine_coflow(coflow, {
                host: client.host(host).classes or []
                for host in sorted(filter(None, set(coflow.hosts)))})
        self._is_broken = any(one.state == findings.ERROR for one in found)
        return found

    def run(self, parsed_args: Any) -> int:
        code: int = super().run(parsed_args)
        return code or int(self._is_broken)


def _answers(client: v1.Client) -> findings.Answers:
    health = client.health()
    if health.status == 'starting':
        return findings.Answers(health, (), (), (), time.time())
    try:
        hosts = client.hosts()
    except exception.Forbidden:
        hosts = None
    return findings.Answers(health, client.coflows(), client.events(), hosts,
                            time.time())
