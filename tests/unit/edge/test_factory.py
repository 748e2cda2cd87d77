# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
