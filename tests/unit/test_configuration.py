# SPDX-License-Identifier: Apache-2.0

"""The log's lines."""

import logging

from oslo_config import cfg
from oslo_log import log
import pytest

from virtco import configuration
from virtco import exception


@pytest.fixture
def logged(tmp_path):
    """Text of a log that is set up as the commands do it."""
    root = logging.getLogger()
    before, level = list(root.handlers), root.level
    conf = cfg.ConfigOpts()
    log.register_options(conf)
    path = tmp_path / 'log'
    configuration.read(conf, ['--log-file', str(path)], ())
    configuration.set_up_log(conf, 'virtco')
    yield path.read_text
    for handler in set(root.handlers) - set(before):
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = before
    root.setLevel(level)


def test_a_line_tells_an_error_once(logged):
    try:
        raise exception.NovaUnavailable(why='refused')
    except exception.NovaUnavailable as error:
        logging.getLogger('virtco.x').warning('Nothing compared: %s', error)
    assert logged().count('refused') == 1
    assert logged().endswith('Nothing compared: Nova did not answer: '
                             'refused.\n')


def test_an_error_that_the_line_leaves_out_is_appended(logged):
    try:
        raise OSError('disk on fire')
    except OSError:
        logging.getLogger('virtco.x').error('It stops.')
    assert 'It stops.: OSError: disk on fire' in logged()
