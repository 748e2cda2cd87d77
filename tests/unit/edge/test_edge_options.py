# SPDX-License-Identifier: Apache-2.0

"""Options of the edge module are those of its sample file."""

import io
import pathlib

from oslo_config import cfg
from oslo_config import generator
import pytest

from edge_module import edge_options
from tests.unit.conf import test_options

SAMPLE = pathlib.Path(__file__).parents[3] / 'etc/virtco/edge.conf.sample'


def test_the_sample_shows_each_default_and_bound():
    """Whoever changes one makes the sample anew with ``tools/genconfig``."""
    conf = cfg.ConfigOpts()
    generator.register_cli_opts(conf)
    conf(['--namespace', 'virtco.edge', '--wrap-width', '79'])
    text = io.StringIO()
    generator.generate(conf, text)
    made = test_options.paragraphs('\n' + text.getvalue())
    shown = test_options.paragraphs(SAMPLE.read_text())
    own = [(group, opt.dest) for group, options in (
        (edge_options.EDGE, edge_options.EDGE_OPTS),
        (edge_options.PROBE, edge_options.PROBE_OPTS)) for opt in options]
    assert len(own) > 20
    assert {key: made[key] for key in own} == {key: shown.get(key)
                                               for key in own}


@pytest.mark.parametrize('name', [
    'cafile', 'certfile', 'keyfile', 'insecure', 'auth_type'])
def test_the_controller_is_asked_with_these_options(name):
    conf = cfg.ConfigOpts()
    edge_options.register_opts(conf)
    conf([])
    assert name in conf.controller_auth
    assert {'timeout', 'collect_timing'}.isdisjoint(conf.controller_auth)
    (options,) = [options for group, options in edge_options.list_opts()
                  if group == edge_options.AUTH]
    assert name in {opt.dest for opt in options}
