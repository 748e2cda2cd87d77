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
"""The assembler, and the layout of keys and values."""

import ipaddress
import struct

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.classify import base
from edge_module.classify import bpf_program
from edge_module.classify import ebpf
from edge_module.classify.ebpf import Jump
from edge_module.classify.ebpf import Reg
from edge_module.classify.ebpf import Size


def test_instructions_are_those_of_the_standard():
    code = ebpf.Assembler()
    code.move(Reg.R0, -1)
    code.alu(ebpf.Alu.ADD, Reg.R2, Reg.R3)
    code.load(Size.WORD, Reg.R1, Reg.R6, 16)
    code.store(Size.HALF, Reg.FRAME, -8, 5)
    code.atomic_add(Reg.R0, 8, Reg.R1)
    code.load_map(Reg.R1)
    code.call(1)
    code.exit()
    packed = code.program()
    assert [packed[at:at + 8].hex() for at in range(0, len(packed), 8)] == [
        'b7000000ffffffff', '0f32000000000000', '6161100000000000',
        '6a0af8ff05000000', 'db10080000000000', '1811000000000000',
        '0000000000000000', '8500000001000000', '9500000000000000']


def test_jumps_reach_their_labels():
    code = ebpf.Assembler()
    code.label('first')
    code.jump('last', Jump.EQUAL, Reg.R1, 7)
    code.load_map(Reg.R1)  # two places
    code.jump('first')
    code.label('last')
    code.exit()
    packed = code.program()
    assert struct.unpack_from('=h', packed, 2) == (3,)
    assert struct.unpack_from('=h', packed, 3 * 8 + 2) == (-4,)


def test_labels_that_are_wrong_are_refused():
    code = ebpf.Assembler()
    code.label('here')
    with pytest.raises(ValueError, match='here'):
        code.label('here')
    code.jump('nowhere')
    with pytest.raises(KeyError, match='nowhere'):
        code.program()


@given(st.one_of(st.tuples(st.ip_addresses(v=4), st.ip_addresses(v=4)),
                 st.tuples(st.ip_addresses(v=6), st.ip_addresses(v=6))),
       st.integers(0, 65535), st.integers(1, 2**31 - 1))
def test_keys_read_back(addresses, dst_port, ifindex):
    source, target = map(str, addresses)
    key = base.Key('', source, target, dst_port)
    packed = bpf_program.pack_key(key, ifindex)
    assert len(packed) == bpf_program.KEY_BYTES
    found_ifindex, found = bpf_program.read_key(packed)
    assert found_ifindex == ifindex and found.dst_port == dst_port
    for shown, given_address in ((found.src_ip, source),
                                 (found.dst_ip, target)):
        assert ipaddress.ip_address(shown) == ipaddress.ip_address(
            given_address)


def test_an_ipv4_key_is_no_ipv6_key():
    """The padding of one must not spell an address of the other."""
    four = bpf_program.pack_key(base.Key('', '32.1.13.184', '32.1.0.0'), 3)
    six = bpf_program.pack_key(base.Key('', '2001:db8::', '2001::'), 3)
    assert four != six


@given(st.lists(st.tuples(st.integers(1, 0xFFFF), st.integers(0, 0xFFFF)),
                max_size=5))
def test_values_start_at_nothing(classes):
    packed = bpf_program.pack_values(classes)
    assert len(packed) == len(classes) * bpf_program.VALUE_BYTES
    assert bpf_program.read_values(packed) == [
        (pair, base.Counted(0, 0)) for pair in classes]
