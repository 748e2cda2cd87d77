# SPDX-License-Identifier: Apache-2.0

"""Requests to the kernel and its answers, over a socket that notes them."""

import errno
import socket
import struct

import pytest

from edge_module.privileged import kernel_calls as kernel
from edge_module.privileged import operations
from edge_module.qdisc import devlink
from edge_module.tcplan import vf_rates

ERROR, DONE = 2, 3
REQUEST, ACK, DUMP, INTERRUPTED = 1, 4, 0x300, 0x10
KIND, FLAGS, GENERIC = 40, 0x400, 16


def message(kind, body=b'', flags=0, sequence=1):
    return struct.pack('=IHHII', 16 + len(body), kind, flags, sequence,
                       0) + body + b'\0' * (-len(body) % 4)


def error(code, sequence=1):
    return message(ERROR, struct.pack('=i', -code), sequence=sequence)


class Kernel:
    """A netlink socket; it answers each datagram by a function."""

    def __init__(self, answer):
        self.sent, self.raw = [], b''
        self._answer = answer
        self._waiting = []

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._waiting = None

    def send(self, data):
        self.raw += data
        self.sent.append(kernel.split(bytes(data)))
        self._waiting += self._answer(self.sent[-1])

    def recv(self, most):
        """Cut off what the caller has no room for, as the kernel does."""
        return self._waiting.pop(0)[:most]


@pytest.fixture
def answering(monkeypatch):
    def make(answer):
        found = Kernel(answer)

        def opened(protocol=0):
            found._waiting, found.protocol = [], protocol
            return found

        monkeypatch.setattr(kernel, 'open_socket', opened)
        return found

    return make


def refusing(*places):
    """Refuse messages by their place, each with an errno of its own, and
    acknowledge the last of each datagram.
    """
    def answer(messages):
        sequences = [sequence for *_, sequence, _ in messages]
        failed = [place + 1 for place in places if place + 1 in sequences]
        found = [error(sequence, sequence) for sequence in failed]
        if sequences[-1] not in failed:
            found.append(error(0, sequences[-1]))
        return found

    return answer


def test_each_message_that_failed_tells_why(answering):
    found = answering(refusing(1, 3))
    assert kernel.tc_send([(KIND, FLAGS, b'abcd')] * 5) == [2, 4]
    chunk, = found.sent
    assert [(kind, body) for kind, _, _, body in chunk] == [
        (KIND, b'abcd')] * 5
    # The kernel acknowledges the last one alone.
    assert [flags for _, flags, _, _ in chunk] == 4 * [FLAGS | REQUEST] + [
        FLAGS | REQUEST | ACK]


def test_a_rate_for_a_card_that_is_missing_is_refused():
    """By the kernel, also by one without devlink."""
    step = vf_rates.Step('set', vf_rates.Name('pci', '0000:ff:1f.7', 1), 1, 2)
    failed, = kernel.tc_change([operations.SetRate(step)])
    assert failed in (errno.ENOENT, errno.ENODEV, errno.EPERM)


def test_answers_may_come_in_one_datagram(answering):
    answering(lambda messages: [b''.join(refusing(0, 2)(messages))])
    assert kernel.tc_send([(KIND, 0, b'')] * 3) == [1, 3]


def test_many_messages_go_in_chunks(answering):
    found = answering(refusing(2, 4))
    assert kernel.tc_send([(KIND, 0, bytes(10_000))] * 5) == [3, 5]
    assert [len(chunk) for chunk in found.sent] == [2, 2, 1]
    assert all(chunk[-1][1] & ACK for chunk in found.sent)
    # One that is larger than a chunk goes alone.
    found.sent.clear()
    assert kernel.tc_send([(KIND, 0, bytes(30_000)), (KIND, 0, b'')]) == []
    assert [len(chunk) for chunk in found.sent] == [1, 1]
    found.sent.clear()
    assert kernel.tc_send([]) == [] == found.sent


@pytest.mark.parametrize('length, n_chunks', [(14_559, 1), (14_560, 2)])
def test_a_chunk_has_24_kib(answering, length, n_chunks):
    found = answering(refusing())
    kernel.tc_send([(KIND, 0, bytes(10_000)), (KIND, 0, bytes(length))])
    assert len(found.sent) == n_chunks


def test_messages_are_of_the_kernels_layout(answering):
    """The kernel fills in the port, for which 0 stands; see netlink(7)."""
    found = answering(lambda messages: [error(0, messages[-1][2])])
    kernel.tc_send([(KIND, 0, b'abcd'), (KIND, FLAGS, b'')])
    assert found.raw == (message(KIND, b'abcd', REQUEST, 1)
                         + message(KIND, b'', FLAGS | REQUEST | ACK, 2))
    found = answering(lambda _: [message(KIND)])
    kernel.ask((KIND, 0, b'x'))
    assert found.raw == message(KIND, b'x', ACK | REQUEST, 1)[:17]


def test_a_dump_is_all_that_comes_until_its_end(answering):
    found = answering(lambda _: [
        message(KIND, b'abcd') + message(KIND, b'e'),
        message(KIND, b'f') + message(DONE, b'\0\0\0\0')])
    assert kernel.tc_dump((KIND, FLAGS, b'x')) == [b'abcd', b'e', b'f']
    assert found.sent == [[(KIND, FLAGS | DUMP | REQUEST, 1, b'x')]]


@pytest.mark.parametrize('interruptions, asked', [(1, 2), (9, 5)])
def test_a_dump_that_was_interrupted_is_made_again(answering, interruptions,
                                                   asked):
    def answer(_messages):
        flags = INTERRUPTED if len(found.sent) <= interruptions else 0
        return [message(KIND, b'abcd', flags) + message(DONE)]

    found = answering(answer)
    assert kernel.tc_dump((KIND, 0, b'')) == [b'abcd']
    assert len(found.sent) == asked


def test_a_request_has_one_answer(answering):
    found = answering(lambda _: [message(KIND, b'abcd')])
    assert kernel.ask((KIND, 0, b'x')) == b'abcd'
    assert found.sent == [[(KIND, ACK | REQUEST, 1, b'x')]]


def test_messages_of_devlink_have_the_type_that_the_kernel_chose(answering):
    """It is asked for once, and only messages of devlink go there."""
    kernel._devlink.cache_clear()
    made = []

    def answer(messages):
        made.append((found.protocol, messages[0][0], messages[-1][3]))
        if messages[0][0] == 16:
            assert found.protocol == GENERIC
            return [message(16, b'\1\1\0\0' + struct.pack(
                '=HHHxx', 6, 1, 0x17))]
        if messages[0][1] & DUMP:
            return [message(0x17, b'abcd') + message(DONE)]
        return [error(0, messages[-1][2])]

    found = answering(answer)
    try:
        assert kernel.tc_dump((devlink.KIND, 0, b'd')) == [b'abcd']
        assert kernel.tc_send([(devlink.KIND, 0, b'1234'),
                               (devlink.KIND, 0, b'5678')]) == []
        with pytest.raises(OSError):
            kernel.ask((devlink.KIND, 0, b'a'))  # acknowledged only
        kernel.tc_send([(KIND, 0, b'r')])
    finally:
        kernel._devlink.cache_clear()
    assert made == [
        (GENERIC, 16, devlink.FAMILY[2]), (GENERIC, 0x17, b'd'),
        (GENERIC, 0x17, b'5678'), (GENERIC, 0x17, b'a'), (0, KIND, b'r')]


def test_no_message_goes_to_the_others_protocol(answering, monkeypatch):
    """Its type has another meaning there."""
    monkeypatch.setattr(kernel, '_devlink', lambda: 0x17)
    made = []

    def answer(messages):
        made.append((found.protocol, [kind for kind, *_ in messages]))
        return [error(errno.EPERM if len(made) > 1 else 0, messages[-1][2])]

    found = answering(answer)
    assert kernel.tc_send([
        (devlink.KIND, 0, b'abcd'), (KIND, 0, b'efgh'), (KIND, 0, b'ijkl'),
        (devlink.KIND, 0, b'mnop')]) == [errno.EPERM, errno.EPERM]
    assert made == [(GENERIC, [0x17]), (0, [KIND, KIND]), (GENERIC, [0x17])]


@pytest.mark.parametrize('call', [kernel.ask, kernel.tc_dump])
def test_what_the_kernel_refuses_is_an_error(answering, call):
    answering(lambda _: [error(errno.EPERM)])
    with pytest.raises(OSError) as caught:
        call((KIND, 0, b''))
    assert caught.value.errno == errno.EPERM


def test_a_datagram_that_was_cut_off_ends_there():
    whole = message(KIND, b'abcde') + message(DONE, sequence=7)
    assert kernel.split(whole) == [(KIND, 0, 1, b'abcde'), (DONE, 0, 7, b'')]
    assert kernel.split(whole[:-1]) == kernel.split(whole)[:1]
    assert kernel.split(struct.pack('=IHHII', 15, KIND, 0, 1, 0)) == []


@pytest.mark.parametrize('fails', [False, True])
def test_nftables_answers_in_json_with_numbers(monkeypatch, fails):
    """Each call has a context of its own, which it frees; see libnftables.h.
    """
    asked = []

    class Library:
        def nft_ctx_new(self, flags):
            asked.append(('new', flags))
            return 7

        def nft_ctx_output_set_flags(self, context, flags):
            asked.append((context.value, flags))

        def nft_run_cmd_from_buffer(self, context, commands):
            asked.append((context.value, commands))
            if fails:
                raise MemoryError
            return 3

        def nft_ctx_get_output_buffer(self, context):
            return b'out'

        def nft_ctx_get_error_buffer(self, context):
            return b'err'

        def nft_ctx_free(self, context):
            asked.append((context.value, 'freed'))

        def __getattr__(self, name):
            return lambda context: asked.append((context.value, name))

    monkeypatch.setattr(kernel, '_libnftables', Library)
    if fails:
        with pytest.raises(MemoryError):
            kernel.nft_run('list')
    else:
        assert kernel.nft_run('list') == (3, 'out', 'err')
    assert asked == [('new', 0), (7, 'nft_ctx_buffer_output'),
                     (7, 'nft_ctx_buffer_error'), (7, 0x10 | 0x40),
                     (7, b'list'), (7, 'freed')]


def test_nftables_is_not_asked_without_file_descriptors(monkeypatch):
    """It would end the process."""
    def refuse(*_args):
        raise OSError(errno.EMFILE, 'told to')

    monkeypatch.setattr(kernel.socket, 'socket', refuse)
    monkeypatch.setattr(kernel, '_libnftables', None)
    with pytest.raises(OSError, match='told to'):
        kernel.nft_run('list')


def test_text_of_nftables_is_read_or_refused(monkeypatch):
    asked = []

    def run(commands):
        asked.append(commands)
        return (0, 'json', '') if commands == 'good' else (1, '', 'why')

    class Text(str):
        def command(self):
            return str(self)

        def commands(self, _at):
            return str(self)

    monkeypatch.setattr(kernel, 'nft_run', run)
    assert kernel.nft_read([Text('good'), Text('bad')]) == ['json', None]
    assert kernel.nft_change('egress', [Text('go'), Text('od')]) is None
    assert kernel.nft_change('egress', [Text('bad')]) == 'why'
    assert asked[-2:] == ['good', 'bad']


def test_a_socket_has_a_port_that_marks_its_changes(monkeypatch):
    """A port that another one of its sockets has is no hindrance."""
    drawn = [5, 5, 6]

    def draw(n_bits):
        assert n_bits == 24
        return drawn.pop(0)

    monkeypatch.setattr(kernel.secrets, 'randbits', draw)
    with (kernel.open_socket() as one, kernel.open_socket() as other,
          socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as plain):
        assert one.getsockname() == (0x76000005, 0)
        assert other.getsockname() == (0x76000006, 0)
        assert one.gettimeout() == 30.0
        for kind in socket.SO_RCVBUF, socket.SO_SNDBUF:
            # As large as the system allows, beyond the default.
            assert one.getsockopt(socket.SOL_SOCKET, kind) > (
                plain.getsockopt(socket.SOL_SOCKET, kind))


def test_a_socket_that_gets_no_port_is_an_error(monkeypatch):
    class Refused(socket.socket):
        def bind(self, address):
            raise PermissionError(errno.EPERM, 'told to')

    monkeypatch.setattr(kernel.socket, 'socket', Refused)
    with pytest.raises(PermissionError):
        kernel.open_socket()


def test_in_this_process_calls_are_free_and_never_end():
    assert kernel.alive() is True and kernel.cpu_s() == 0.0
