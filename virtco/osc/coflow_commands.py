# SPDX-License-Identifier: Apache-2.0

"""``coflow …``, ``event list``, ``plan create`` and ``project …``."""

from collections.abc import Iterator
from collections.abc import Sequence
import math
import time
import typing
from typing import Any

import msgspec
from osc_lib import exceptions as osc_exceptions

from virtco import exception
from virtco import units
from virtco.osc import command_base as base
from virtco.osc import nova_facts
from virtco.osc import table_columns as columns
from virtco.wire import coflow_bodies as wire
from virtco.wire import group as group_wire
from virtco.wire import plan as plan_wire
from virtco.wire import project as project_wire
from virtco.wire import setting as setting_wire

#: Kind of event by the state of a group without a coflow.
UNPLANNED = {'ignored': 'hint_ignored', 'neutral': 'neutral'}
#: Longest time in seconds that ``plan create`` waits for a better plan.
MOST_PATIENCE_S = 3600.0
#: Share of the time that the other groups add to the plan for which it waits;
#: see ``benchmarks.deferral``.
WAITED_SHARE = 0.25
#: Plans that ``plan create`` asks for while it waits, at most.
MOST_LOOKS = 30
STATES = [*typing.get_args(wire.State), *UNPLANNED]


class ListCoflows(base.Lister):
    """List coflows, and the groups that have none

    A group with an invalid hint has the state "ignored", one that was placed
    without a plan "neutral"; its warnings have the reason.
    """

    row = wire.Coflow
    shown = ['name', 'state', 'remaining_bytes', 'rank', 'rate_bps', 'cct_s',
             'measured_cct_s']
    example = '--state active --long'

    arguments = (
        base.only_of_project('coflows'),
        base.argument('--state', choices=STATES, metavar='<state>',
                      help='Only coflows in this state: '
                           + ', '.join(STATES)),
        base.argument('--all', action='store_true',
                      help='Also retired coflows'),
        base.argument('--limit', type=int, metavar='<n>',
                      help='Most coflows of the list, which are the newest; '
                           'groups that have none are left out'),
        base.argument('--marker', metavar='<coflow>',
                      help='Only coflows that are older than this one, by '
                           'its id; groups that have none are left out'))

    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        client = self.client
        page = {'limit': args.limit, 'marker': args.marker}
        if page != dict.fromkeys(page) or args.state not in (None, *UNPLANNED):
            return base.coflows_of(client, args.project_id, state=args.state,
                                   **page)
        found = base.coflows_of(client, args.project_id,
                                retired=None if args.all else False)
        unplanned = [one for one in _unplanned(
            client.call(wire.EVENTS, args.project_id).events, found)
            if args.state in (None, one.state)]
        return unplanned if args.state else [*found, *unplanned]


class ShowCoflow(base.ShowOne):
    """Show a coflow, or why a group has none"""

    asks = wire.SHOW
    example = 'wordcount'
    arguments = (base.argument(
        'coflow_id', metavar='coflow',
        help='Id or name; for a group without a coflow its name or the id '
             'of a server'),)

    def entry(self, args: Any) -> msgspec.Struct:
        try:
            return super().entry(args)
        except (base.NoSuchCoflow, exception.NotFound):
            unplanned = [one for one in _unplanned(
                self.client.call(wire.EVENTS).events,
                base.coflows_of(self.client))
                if args.coflow_id in (one.id, one.name)]
            if not unplanned:
                raise
            return unplanned[-1]


class _Unplanned(msgspec.Struct, frozen=True):
    """A server whose group has no coflow, with a coflow's field names."""

    id: str | None
    name: str | None
    project_id: str
    warnings: str
    why: str
    arrival: float
    state: str


def _unplanned(events: list[wire.Event], coflows: list[wire.Coflow]
               ) -> list[_Unplanned]:
    """Select the servers whose group has no coflow, the oldest first."""
    known = {(c.project_id, c.group_name) for c in coflows}
    return [_Unplanned(
        event.instance_uuid, event.group_name, event.project_id,
        event.detail, event.detail, event.at, state)
        for event in reversed(events)
        for state, kind in UNPLANNED.items()
        if event.kind == kind
        and (event.project_id, event.group_name) not in known]


class CreateCoflow(base.Lister):
    """Register a matrix, or announce a coflow over VMs that run

    The id of a registered matrix is the hint virtco:tm_ref. With --group the
    coflow is over the VMs of that group, row by row, and replaces one of the
    same name that was announced before.
    """

    row = wire.Coflow
    shown = ['id', 'name', 'state', 'size_bytes', 'n_flows', 'expires']
    example = "stage-2 '[[0,\"5GB\"],[0,0]]' --group wordcount"
    arguments = (
        base.argument('name', help='Name of the coflow'), base.TM,
        base.argument('--group', metavar='<group>',
                      help='Group that runs, by name or id'),
        base.argument('--expires', dest='expires_s', type=float,
                      metavar='<seconds>',
                      help='Time after which the coflow of --group ends if it '
                           'is not done, in seconds (default 3600)'),
        base.PROJECT)

    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        if args.group is not None:
            self.asks = wire.ANNOUNCE
            return super().entries(args)
        if args.expires_s is not None:
            raise osc_exceptions.CommandError('--expires needs --group.')
        self.asks = wire.REGISTER
        return [self.ask(args)]


DeleteCoflow = base.declared(base.Command, wire.DELETE, base.COFLOW,
                             example='wordcount')
ShowClusters = base.declared(
    base.Lister, group_wire.CLUSTERS, base.GROUP,
    base.argument('--level', choices=['rack', 'host'],
                  help='Level that the VMs of a cluster share '
                       '(default rack)'), base.PROJECT,
    told="""Show which VMs of a group share a rack or a host

    The ids of clusters mean nothing outside the group.
    """, example='wordcount --level host',
    shown='row display_name instance_uuid cluster')
ListProjects = base.declared(
    base.Lister, project_wire.LIST, example='-f json',
    shown='project_id priority_class weight debt_bytes')


class ListEvents(base.Lister):
    """List events of groups, or changes by operators"""

    asks = wire.EVENTS
    shown = ['at', 'kind', 'group_name', 'detail']
    example = '--project lab'
    arguments = (
        base.only_of_project('events'),
        base.argument('--changes', action='store_true',
                      help='List changes of settings and hosts by operators '
                           'instead'))

    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        if not args.changes:
            return super().entries(args)
        self.row = setting_wire.Changed
        self.shown = ['at', 'who', 'what', 'before', 'after']
        return self.client.call(setting_wire.HISTORY).changes


PRIORITY = (
    base.argument('--priority-class', type=int, metavar='<class>',
                  help='Lower is served first (order priority)'),
    base.argument('--weight', type=float, metavar='<weight>',
                  help='Weight of its time (order mrtf) or of its share '
                       '(order weighted-fair)'))


class SetCoflow(base.Change):
    """Declare a coflow done, or set its class or weight (operators)"""

    example = 'wordcount --done'
    asks = wire.CHANGE
    arguments = (
        base.COFLOW,
        base.argument('--done', dest='state', action='store_const',
                      const='done', help='It has sent all its bytes'),
        *PRIORITY)


class SetProject(base.Change):
    """Set the priority class or weight of a project, or forgive (operators)

    The value holds for running and later coflows of the project.
    """

    example = 'lab --priority-class 1'
    asks = project_wire.CHANGE
    arguments = (
        base.argument('project_id', metavar='project', help='Name or id'),
        *PRIORITY,
        base.argument('--forgive', dest='debt_bytes', action='store_const',
                      const=0, help='Delete its debt for bytes beyond its '
                                    'hints'))


class CreatePlan(base.Lister):
    """Ask where a group would be placed now; nothing is reserved (operators)

    FILE has the body of POST /v1/plans: groups, hosts and options. Without it
    --tm and --flavor describe a group, and the hosts are those of the cloud
    with their free resources.
    """

    row: Any = plan_wire.Vm
    shown = ['group', 'row', 'host']
    example = '--flavor m1.large --tm \'[[0,"5GB"],[0,0]]\''

    arguments = (
        base.argument('file', nargs='?', help='JSON file'),
        base.argument('--tm', help=base.MATRIX),
        base.argument('--flavor', help=nova_facts.FLAVOR),
        base.argument('--within', metavar='<level>',
                      help='Wish as in the hint virtco:within'),
        base.argument('--spread', metavar='<level>',
                      help='Wish as in the hint virtco:spread'),
        base.argument('--deadline', metavar='<time>',
                      help='Ask for a promise as in the hint '
                           'virtco:deadline'),
        base.argument('--budget', type=float, metavar='<seconds>',
                      help='Time of the search for a plan'),
        base.argument('--patience', type=float, default=0.0,
                      metavar='<seconds>',
                      help='Wait so long at most for a better plan, as long '
                           'as waiting pays'),
        base.argument('--delays', action='store_true',
                      help='List the coflows that would end later '
                           'instead of the hosts'))

    def _body(self, args: Any) -> dict[str, Any]:
        if args.file is not None:
            body = self.read_json('file', args.file)
            known = plan_wire.PLAN.parameters
            if not (isinstance(body, dict) and body.keys() <= set(known)):
                raise exception.Invalid(
                    field='file', value=args.file,
                    limit='a JSON object of ' + ', '.join(known))
            return body
        if args.tm is None or args.flavor is None:
            raise osc_exceptions.CommandError(
                'Give --tm and --flavor, or a file.')
        demand = nova_facts.flavor(self.app.client_manager.session,
                                   args.flavor)
        return {'groups': [{'name': 'plan', 'tm': self.text_of(args.tm),
                            'flavor': demand}],
                'within': args.within, 'spread': args.spread,
                'deadline': args.deadline, 'budget_s': args.budget}

    def _plan(self, args: Any) -> plan_wire.Plan:
        """Plan now or, with patience, when waiting pays no longer."""
        most_s, body = args.patience, self._body(args)
        if not 0 <= most_s <= MOST_PATIENCE_S:
            raise exception.Invalid(
                field='--patience', value=most_s,
                limit=f'0 to {MOST_PATIENCE_S:g} seconds')
        if not most_s:
            return self.client.call(plan_wire.PLAN, **body)
        began_s = time.monotonic()
        alone_s = _cct_s(self.client.call(
            plan_wire.PLAN, **body | {'alone': True}))
        first_s: float | None = None
        while True:
            waited_s = time.monotonic() - began_s
            try:
                plan = self.client.call(plan_wire.PLAN, **body)
                cct_s, why = _cct_s(plan), f'{plan.bottleneck} decides'
            except exception.PlacementInfeasible as error:
                if waited_s >= most_s:
                    raise
                cct_s, why = math.inf, str(error)
            left_s = min(most_s, WAITED_SHARE * (cct_s - alone_s)) - waited_s
            if left_s <= 0:
                break
            if first_s is None:
                first_s = cct_s
                self.tell(f'CCT {_end(cct_s)} now and {_end(alone_s)} without '
                          f'other groups: waits {_end(left_s)} at most; {why}')
            time.sleep(min(most_s / MOST_LOOKS, left_s))
        if first_s is not None:
            saved_s = first_s - cct_s - waited_s
            self.tell(f'Waited {_end(waited_s)}: CCT {_end(cct_s)} instead of '
                      f'{_end(first_s)}' + (f', {saved_s:.4g} s saved'
                                            if saved_s < math.inf else ''))
        return plan

    def entries(self, args: Any) -> Sequence[msgspec.Struct]:
        plan = self._plan(args)
        self.tell(*_summary(plan))
        if not args.delays:
            return plan.vms
        self.row = plan_wire.Delay
        self.shown = ['name', 'project_id', 'before_s', 'after_s']
        return plan.delays


def _summary(plan: plan_wire.Plan) -> Iterator[str]:
    """Summarize a plan, line by line."""
    yield (f'{columns.bounds(plan)}; {plan.method} on {plan.n_hosts} hosts, '
           f'{plan.bottleneck} decides')
    yield from plan.notes
    if plan.deadline is not None:
        yield f'Deadline: {plan.deadline.why}.'
    for one in plan.delays[:5]:
        yield (f'It would delay {one.name} of project {one.project_id} '
               f'from {_end(one.before_s)} to {_end(one.after_s)}.')
    if len(plan.delays) > 5:
        yield f'And {len(plan.delays) - 5} more; --delays lists them.'
    if not plan.delays:
        yield 'It would delay nobody.'


def _cct_s(plan: plan_wire.Plan) -> float:
    """Return when the last coflow of a plan would end, in seconds."""
    return max(units.number(one.cct_s) for one in plan.coflows)


def _end(end_s: float | None) -> str:
    """Format an end; None, which JSON has for infinity, is never."""
    return 'never' if end_s in (None, math.inf) else units.format_time(end_s)
