# SPDX-License-Identifier: Apache-2.0

"""Goal of Watcher's audits that use virtco's strategy, with its efficacy."""

from typing import Any

from watcher.decision_engine.goal import base
from watcher.decision_engine.goal.efficacy import base as efficacy_base
from watcher.decision_engine.goal.efficacy import indicators
from watcher.decision_engine.solution import efficacy

NAME = 'coflow_completion_time'
TITLE = 'Coflow Completion Time'


class Indicator(indicators.IndicatorSpecification):
    """A number that values the moves of an audit."""

    def __init__(self, name: str, unit: str | None, description: str,
                 schema: dict[str, Any]):
        super().__init__(name=name, unit=unit, description=description)
        self._schema = schema

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the number, by which Watcher checks it."""
        return self._schema


class Efficacy(efficacy_base.EfficacySpecification):
    """Figures by which Watcher judges an audit."""

    def get_indicators_specifications(self) -> list[Any]:
        """List migrations, time saved and time of the migrations."""
        return [
            Indicator('migrations_count', None, 'Number of live migrations',
                      {'type': 'integer', 'minimum': 0}),
            Indicator('saved_s', 's', 'What the coflows together end earlier, '
                      'in seconds', {'type': 'number'}),
            Indicator('cost_s', 's', 'What the migrations take together, in '
                      'seconds', {'type': 'number', 'minimum': 0})]

    def get_global_efficacy_indicator(self, indicators_map: Any = None
                                      ) -> list[Any]:
        """Return the time saved, less that of the migrations, in seconds."""
        gain_s = (indicators_map.saved_s - indicators_map.cost_s
                  if indicators_map else 0.0)
        return [efficacy.Indicator(
            name='gain_s', unit='s', value=gain_s,
            description='Time saved, less that of the migrations')]


class CoflowCompletionTime(base.Goal):
    """Coflow Completion Time

    Groups of servers that send to each other end their transfers earlier.
    """

    @classmethod
    def get_name(cls) -> str:
        """Return the name by which audits ask for the goal."""
        return NAME

    @classmethod
    def get_display_name(cls) -> str:
        """Return the title that Watcher shows to people."""
        return TITLE

    get_translatable_display_name = get_display_name

    @classmethod
    def get_efficacy_specification(cls) -> Efficacy:
        """Return the figures by which audits of the goal are judged."""
        return Efficacy()
