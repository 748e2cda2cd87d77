# SPDX-License-Identifier: Apache-2.0

"""Turns the controller's advice into Watcher's actions."""

from typing import Any

from oslo_config import cfg
from oslo_log import log
from watcher.common import exception as watcher_exception
from watcher.decision_engine.model import element
from watcher.decision_engine.strategy.strategies import base

from virtco.client import v1
from virtco.watcher import goal
from virtco.wire import plan as wire

LOG = log.getLogger(__name__)

NAME = 'virtco'
TITLE = 'Moves that virtco advises'
ACTIVE = element.InstanceState.ACTIVE.value
ENABLED = element.ServiceState.ENABLED.value
ONLINE = element.ServiceState.ONLINE.value


class CoflowAdvice(base.BaseStrategy):
    """Live migrations that end coflows earlier

    *Description*

        The virtco controller knows what the servers of a group have still to
        send to each other. It advises to move a server where the group then
        saves more time than the migration takes, and off drained hosts. This
        strategy makes a live migration of each such move.

    *Requirements*

        * A virtco controller that Watcher's account may ask as an operator.

    *Limitations*

        * One move of each group at a time: let a continuous audit repeat.
        * Time saved is predicted for each move on its own.
        * ``[reevaluation] max_migrations`` of the controller has to be 0; else
          both would move servers.
    """

    @classmethod
    def get_name(cls) -> str:
        """Return the name by which audits ask for the strategy."""
        return NAME

    @classmethod
    def get_display_name(cls) -> str:
        """Return the title that Watcher shows to people."""
        return TITLE

    get_translatable_display_name = get_display_name

    @classmethod
    def get_goal_name(cls) -> str:
        """Return the name of the goal that the strategy serves."""
        return goal.NAME

    @classmethod
    def get_config_opts(cls) -> list[Any]:
        """List the options of the strategy in Watcher's configuration."""
        return [
            cfg.URIOpt('controller_url', schemes=['http', 'https'], help="""
Where the virtco controller listens; by default what the service catalogue has
for the type ``coflow``.
"""),
            cfg.StrOpt('auth_strategy', default='keystone',
                       choices=['keystone', 'noauth'], help="""
As ``[api] auth_strategy`` of the controller. With ``keystone`` Watcher's
account (``[watcher_clients_auth]``) needs the rights of an operator there.
"""),
            cfg.FloatOpt('timeout_s', default=30, min=1, max=600, help="""
Time to wait for the controller, in seconds; with ``budget_s`` that long more.
"""),
        ]

    @classmethod
    def get_schema(cls) -> dict[str, Any]:
        """Describe the parameters of an audit as JSON schema."""
        return {'properties': {
            'max_migrations': {
                'description': 'How many servers one audit moves at most.',
                'type': 'integer', 'default': 1, 'minimum': 1},
            'min_gain_s': {
                'description': 'Least time saved, less the time of the '
                               'migration, in seconds; moves off drained '
                               'hosts are made whatever they save.',
                'type': 'number', 'default': 0, 'minimum': 0},
            'budget_s': {
                'description': 'Seconds in which the controller looks for '
                               'moves; 0 takes what it found last, each '
                               '[reevaluation] interval_s.',
                'type': 'number', 'default': 5, 'minimum': 0,
                'maximum': 60},
        }}

    def __init__(self, config: Any, osc: Any = None) -> None:
        super().__init__(config, osc)
        self._moves: list[wire.Move] = []

    def pre_execute(self) -> None:
        """Let Watcher check that its compute model is there and current."""
        self._pre_execute()

    def do_execute(self, audit: Any = None) -> None:
        """Add the controller's moves to the solution where they can be made.

        :raises virtco.exception.VirtcoException: the controller does not
            answer, or refuses; the audit has failed.
        """
        most = self._parameter('max_migrations')
        for move in self._advice():
            if len(self._moves) == most:
                break
            why = self._obstacle(move)
            if why:
                LOG.info('virtco advises to move %s from %s to %s; left '
                         'out: %s.', move.instance_uuid, move.host,
                         move.to_host, why)
                continue
            self.add_action_migrate(
                self.compute_model.get_instance_by_uuid(
                    move.instance_uuid), 'live',
                self.compute_model.get_node_by_name(move.host),
                self.compute_model.get_node_by_name(move.to_host))
            self._moves.append(move)

    def post_execute(self) -> None:
        """Set the efficacy of the solution from the moves' seconds."""
        self.solution.model = self.compute_model
        self.solution.set_efficacy_indicators(
            migrations_count=len(self._moves),
            saved_s=float(sum(move.saved_s for move in self._moves)),
            cost_s=float(sum(move.cost_s for move in self._moves)))

    def _parameter(self, name: str) -> Any:
        return self.input_parameters.get(
            name, self.get_schema()['properties'][name]['default'])

    def _advice(self) -> list[wire.Move]:
        """List moves, the best first."""
        budget_s = self._parameter('budget_s')
        client = self._client(self.config.timeout_s + budget_s)
        found = (client.call(wire.LOOK, budget_s) if budget_s
                 else client.call(wire.MOVES))
        return found.moves

    def _client(self, timeout_s: float) -> v1.Client:
        url = self.config.controller_url
        if self.config.auth_strategy == 'noauth':
            return v1.Client(url, timeout_s=timeout_s)
        session = self.osc.session
        return v1.Client(url or v1.url_in_catalogue(session), session,
                         timeout_s)

    def _obstacle(self, move: wire.Move) -> str:
        """Tell why the move is not for this audit; empty when it is."""
        if move.state != 'proposed':
            return f'its state is {move.state}'
        gain_s = move.saved_s - move.cost_s
        if move.reason != 'drain' and (
                gain_s < self._parameter('min_gain_s')):
            return f'it gains {gain_s:.3f} s'
        model = self.compute_model
        instance = model.get_all_instances().get(move.instance_uuid)
        if instance is None:
            return 'the server is not in the scope of the audit'
        try:
            source = model.get_node_by_instance_uuid(instance.uuid)
            target = model.get_node_by_name(move.to_host)
        except watcher_exception.ComputeResourceNotFound as error:
            return str(error)
        if source.hostname != move.host:
            return f'the server is on {source.hostname}'
        if instance.watcher_exclude or instance.locked:
            return 'the server is excluded or locked'
        if instance.state != ACTIVE:
            return f'the server is {instance.state}'
        if (target.status, target.state) != (ENABLED, ONLINE):
            return f'{target.hostname} is {target.status} and {target.state}'
        return ''
