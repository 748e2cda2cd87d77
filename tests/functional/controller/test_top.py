# SPDX-License-Identifier: Apache-2.0

"""``virtco top`` shows what a real controller answers."""

import io

import msgspec
from rich import console

from tests.functional.controller import test_policies as policies
from virtco.client import v1
from virtco.osc import overview
from virtco.osc import top


def test_a_look(make):
    controller = make()
    tenant = controller.tenant()
    hosts, _edges = policies.one_pair(tenant)
    policies.settled(lambda: tenant.coflow()['state'] == 'active')
    seen = top.ask(v1.Client(controller.url), tenant.project)
    out = io.StringIO()
    console.Console(file=out, width=80).print(overview.screen(seen))
    found = {line.split()[0]: line.split() for line in
             out.getvalue().splitlines() if line.strip()}
    assert found['a'][:3] == ['a', '0', 'active']
    for host in set(hosts):
        cut = tenant.host(host)[:11] + '…'
        assert found[cut][-1] == 'ok', out.getvalue()
    assert all(host.classes is not msgspec.UNSET for host in seen.hosts)
