# SPDX-License-Identifier: Apache-2.0

"""Which shaper the options ask for."""

from oslo_config import cfg
import pytest

from edge_module import conf as edge_conf
from edge_module import factory
from edge_module.qdisc import htb
from edge_module.shaper import edt
from virtco import exception


@pytest.fixture
def parts():
    conf = cfg.ConfigOpts()
    edge_conf.register_opts(conf)
    conf([])
    conf.set_override('uplink_dev', 'lo', 'edge')
    return factory.Parts(conf, object())


def test_htb_is_the_default(parts):
    shaper = parts.shaper()
    assert isinstance(shaper, htb.Uplink) and shaper.how == 'htb'
    parts.conf.set_override('htb_offload', True, 'edge')
    assert parts.shaper().how == 'htb, offloaded to the device'


def test_departure_times_need_their_program_and_privileges(parts, tmp_path,
                                                           monkeypatch):
    parts.conf.set_override('shaper', 'edt', 'edge')
    monkeypatch.setattr(edt, 'OBJECT', tmp_path / 'edt.o')
    with pytest.raises(exception.Invalid, match='built without clang'):
        parts.shaper()
    edt.OBJECT.touch()
    assert parts.shaper().how == 'edt'
    parts.conf.set_override('user', 'virtco-edge', 'edge')
    with pytest.raises(exception.Invalid, match='user'):
        parts.shaper()
