# SPDX-License-Identifier: Apache-2.0

"""Options: documented, bounded, in the samples, never registered twice."""

import io
import pathlib

from oslo_config import cfg
from oslo_config import generator
import pytest

from virtco.conf import nova_options as nova
from virtco.conf import opts

ETC = pathlib.Path(__file__).parents[3] / 'etc' / 'virtco'
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


def paragraphs(text):
    """What a sample says of each option, by group and name."""
    found = {}
    for section in text.split('\n[')[1:]:
        group, _, rest = section.partition(']\n')
        for part in rest.split('\n\n'):
            *_, last = part.strip().splitlines() or ['']
            found[group, last.strip('#').partition(' =')[0]] = part.strip()
    return found


def test_the_sample_is_what_the_options_say():
    """Defaults, bounds and choices: whoever changes one makes it anew with
    ``tools/genconfig``, and reads in the diff what operators will see.
    """
    conf = cfg.ConfigOpts()
    generator.register_cli_opts(conf)
    conf(['--namespace', 'virtco', '--wrap-width', '79'])
    text = io.StringIO()
    generator.generate(conf, text)
    made = paragraphs('\n' + text.getvalue())
    shown = paragraphs((ETC / 'virtco.conf.sample').read_text())
    own = [(group, opt.dest) for group, opt in OWN]
    assert {key: made[key] for key in own} == {key: shown.get(key)
                                               for key in own}


def test_of_a_library_all_options_are_shown():
    shown = paragraphs((ETC / 'virtco.conf.sample').read_text())
    for group, options in opts.list_opts():
        for opt in options:
            assert (group, opt.dest) in shown


def test_nova_is_asked_within_bounds_of_its_own():
    conf = cfg.ConfigOpts()
    opts.register_opts(conf)
    conf([])
    assert conf.nova.valid_interfaces == ['internal', 'public']
    assert not {'interface', 'service_type', 'min_version',
                'timeout'} & set(conf.nova)
    # Passwords stay out of the log.
    assert {opt.dest for _, opt in OWN if opt.secret} == {
        'backend_url', 'transport_url'}


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
