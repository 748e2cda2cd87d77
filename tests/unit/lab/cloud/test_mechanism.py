# SPDX-License-Identifier: Apache-2.0

"""The cloud's driver for Neutron, with what it takes from neutron-lib."""

import importlib
import sys
import types


def test_a_port_is_bound_where_nova_says(monkeypatch):
    made = {
        'neutron_lib': {'constants': types.SimpleNamespace(ACTIVE='ACTIVE')},
        'neutron_lib.api': {},
        'neutron_lib.api.definitions': {
            'portbindings': types.SimpleNamespace(
                VIF_TYPE_OVS='ovs', CAP_PORT_FILTER='port_filter')},
        'neutron_lib.plugins': {},
        'neutron_lib.plugins.ml2': {'api': types.SimpleNamespace(
            MechanismDriver=object, PortContext=object, ID='id')}}
    for name, attributes in made.items():
        module = types.ModuleType(name)
        vars(module).update(attributes)
        monkeypatch.setitem(sys.modules, name, module)
    name = 'virtco_lab.cloud.mechanism'
    monkeypatch.delitem(sys.modules, name, raising=False)
    driver = importlib.import_module(name).LabMechanism()
    monkeypatch.delitem(sys.modules, name)
    bound = []
    driver.initialize()
    driver.bind_port(types.SimpleNamespace(
        segments_to_bind=[{'id': 's0'}, {'id': 's1'}],
        set_binding=lambda *words: bound.append(words)))
    # Its bridge filters nothing.
    assert bound == [('s0', 'ovs', {'port_filter': False}, 'ACTIVE')]
