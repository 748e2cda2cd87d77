# SPDX-License-Identifier: Apache-2.0

"""A connection between a transport that keeps all that is written and a hub
that notes all that it is told.
"""

import ssl

import msgspec

from tests.unit import made
from virtco.distribute import connection
from virtco.distribute import tickets
from virtco.wire import frames

KEY = 'key'


class Transport:
    """
    :ivar written: messages; those in an envelope behind their host.
    """

    def __init__(self, tls=None):
        self.written = []
        self.end = None
        self.limits = []
        self.is_reading = True
        self._tls = tls

    def set_write_buffer_limits(self, high, low=None):
        self.limits.append((high, low))

    def set_read_buffer_limits(self, high):
        assert self._tls is not None
        self.read_limit_bytes = high

    def get_extra_info(self, name):
        assert name == 'ssl_object'
        return self._tls

    def is_closing(self):
        return self.end is not None

    def write(self, frame):
        (payload,) = frames.Reader().feed(frame)
        if frames.is_enveloped(payload):
            host, inner = frames.opened(payload)
            self.written.append((host, msgspec.json.decode(inner)))
        else:
            self.written.append(msgspec.json.decode(payload))

    def pause_reading(self):
        assert self.end is None
        self.is_reading = False

    def resume_reading(self):
        assert not self.is_reading and self.end is None
        self.is_reading = True

    def close(self):
        self.end = 'closed'

    def abort(self):
        self.end = 'aborted'


class Tls:
    """Of an edge whose certificate is for h1."""

    def __init__(self, asks=True, certificate=True):
        self.context = self
        self.verify_mode = ssl.CERT_REQUIRED if asks else ssl.CERT_NONE
        self._found = {'subjectAltName': [('DNS', 'h1')]
                       } if certificate else None

    def getpeercert(self):
        return self._found


class Doors:
    """What a hub asks and tells: its values, and its notes."""

    def __init__(self, hub):
        self.told = hub.told
        self._hub = hub

    def is_answering(self, within_s):
        return self._hub.is_answering

    def __getattr__(self, name):
        return lambda: getattr(self._hub, name)


class Hub:
    """Notes what it is told, the host or the name of the subject first."""

    hello_s = 60.0
    most_bytes = 10_000
    epoch = 4
    elsewhere = None
    ticket_key = None
    is_answering = False
    peer_key = KEY

    def __init__(self, **values):
        self.now_s = 5.0
        self.notes = []
        self.charged, self.waits_s = [], []
        self.arriving = memoryview(bytearray(100_000))
        for name, value in values.items():
            setattr(self, name, value)
        self.doors = Doors(self)

    def clock(self):
        return self.now_s

    cpu_clock = clock

    def charge(self, host, size_bytes, cpu_s):
        self.charged.append((host, size_bytes, cpu_s))
        return self.waits_s.pop(0) if self.waits_s else 0.0

    def has_rested(self, host):
        return ('rests', host) in self.notes

    def __getattr__(self, kind):
        if kind not in ('opened', 'left', 'heard', 'rests', 'joined', 'told',
                        'closed', 'resumed', 'refused'):
            raise AttributeError(kind)

        def note(subject, *args):
            if isinstance(subject, connection.Seat):
                subject = subject.host
            elif isinstance(subject, connection.Peer):
                subject = subject.name
            elif isinstance(subject, connection.Connection):
                subject = None
            self.notes.append((kind, subject, *args))
        return note

    def take(self):
        notes, self.notes = self.notes, []
        return notes


class End:
    """A connection and both its ends."""

    def __init__(self, tls=None, **values):
        self.hub = Hub(**values)
        self.transport = Transport(tls)
        self.connection = connection.Connection(self.hub, '10.0.0.1')
        self.connection.connection_made(self.transport)

    def come(self, data):
        """Bytes come."""
        self.connection.get_buffer(len(data))[:len(data)] = data
        self.connection.buffer_updated(len(data))

    def say(self, kind, **values):
        self.come(made.frame(kind, **values))

    def say_for(self, host, kind, /, **values):
        self.come(frames.enveloped(
            host, made.frame(kind, **values)[frames.HEADER_BYTES:]))

    def gone(self, host):
        self.come(frames.enveloped(host, b''))

    def hello(self, host='h1', **values):
        self.say('hello', **{'version': frames.VERSION, 'host': host,
                             'generation': 3} | values)
        return self

    def hello_for(self, host, named=None, **values):
        self.say_for(host, 'hello', **{
            'version': frames.VERSION, 'host': named or host} | values)

    def join(self, **values):
        self.say('peer', **{
            'version': frames.VERSION, 'name': 'p1', 'epoch': 4,
            'ticket': tickets.of_peer(KEY, 'p1')} | values)
        return self

    def take(self):
        """Messages that it was told since it was last asked."""
        found = list(self.transport.written)
        self.transport.written.clear()
        return found

    def heard(self):
        """Their kinds."""
        return [message['type'] for message in self.take()]


def payload_of(kind, **values):
    return made.frame(kind, **values)[frames.HEADER_BYTES:]
