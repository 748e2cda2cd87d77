# SPDX-License-Identifier: Apache-2.0

"""Options: documented, bounded, in the samples, never registered twice."""

import pathlib

from oslo_config import cfg
import pytest

from virtco.conf import nova
from virtco.conf import opts

ETC = pathlib.Path(__file__).parents[2] / 'etc' / 'virtco'
LIBRARIES = {opt.dest for opt in nova.auth_opts()}
OWN = [(group, opt) for group, options in opts.list_opts()
       for opt in options if group != 'database'
       and not (group == 'nova' and opt.dest in LIBRARIES)]


@pytest.mark.parametrize(('group', 'opt'), OWN,
                         ids=[f'{g}.{o.name}' for g, o in OWN])
def test_an_option_is_documented_and_bounded(group, opt):
    assert len(opt.help.split()) >= 5
    assert group
    if isinstance(opt, cfg.IntOpt | cfg.FloatOpt):
        assert opt.type.min is not None
    for unit, word in (('_s', 'second'), ('_bps', 'bits per second'),
                       ('_bytes', 'bytes')):
        if opt.name.endswith(unit):
            assert word in opt.help


def test_registering_is_on_the_given_object_only():
    first, second = cfg.ConfigOpts(), cfg.ConfigOpts()
    opts.register_opts(first)
    opts.register_opts(first)
    first([])
    second([])
    assert first.api.host == '127.0.0.1'
    assert not hasattr(second, 'api')


def test_the_sample_has_every_option():
    text = (ETC / 'virtco.conf.sample').read_text()
    for group, options in opts.list_opts():
        section = text.split(f'\n[{group}]\n')[1].split('\n[')[0]
        for opt in options:
            assert f'\n#{opt.dest} =' in section, (group, opt.name)


@pytest.mark.parametrize('text', [
    '[api]\nport = 70000\n', '[placement]\nplanner = best\n',
    '[scheduler]\ndefault_share = 2\n', '[api]\nthreads = 0\n'])
def test_a_bad_value_is_refused(tmp_path, text):
    path = tmp_path / 'virtco.conf'
    path.write_text(text)
    conf = cfg.ConfigOpts()
    opts.register_opts(conf)
    with pytest.raises(cfg.ConfigFileValueError):
        conf(['--config-file', str(path)])
        for group, opt in OWN:
            conf[group][opt.dest]
