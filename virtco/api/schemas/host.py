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

"""Bodies of reports and measurements."""

from virtco.api.schemas import common

LINK = common.body({
    'dev': common.NAME,
    'egress_bps': common.nullable(common.LINK_RATE),
    'ingress_bps': common.nullable(common.LINK_RATE),
}, required=['egress_bps', 'ingress_bps'], extra=True)
MAC = {'type': 'string', 'pattern': r'^[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z'}
PORT = common.body({
    'vm': common.ID, 'dev': common.NAME,
    'mac': {'type': 'string', 'maxLength': 32},
    'ips': common.listed(common.ADDRESS, 256),
}, required=['vm'], extra=True)
COFLOW = common.body({
    'coflow_id': common.ID, 'sent_bytes': common.BYTES,
    'drops': common.BYTES, 'backlog_bytes': common.BYTES,
    'destinations': common.listed(common.body({
        'host': common.HOST, 'sent_bytes': common.BYTES}, extra=True)),
}, required=['coflow_id', 'sent_bytes'], extra=True)
PAIR = common.body({
    'dev': common.NAME,
    'src_ip': common.ADDRESS, 'dst_ip': common.ADDRESS,
    'dst_port': common.nullable(common.PORT),
    'sent_bytes': common.BYTES,
}, required=['src_ip', 'dst_ip', 'sent_bytes'], extra=True)

REPORT = common.body({
    'boot_id': {'type': 'string', 'maxLength': 64},
    'boot_ms': {'type': 'integer', 'minimum': 0, 'maximum': 2 ** 53},
    'epoch': {'type': 'string', 'minLength': 1, 'maxLength': 64},
    'applied_generation': common.GENERATION,
    'link': LINK,
    'probe': common.nullable(common.body({
        'address': common.ADDRESS, 'port': common.PORT}, extra=True)),
    'ports': common.listed(PORT),
    'coflows': common.listed(COFLOW),
    'pairs': common.listed(PAIR, 100_000),
    'uplink_sent_bytes': common.BYTES,
    'default_sent_bytes': common.BYTES,
    'unmanaged': common.body({
        'macs': common.listed(MAC, 1024),
        'limited': common.listed(common.body({
            'host': common.nullable(common.HOST),
            'sent_bytes': common.BYTES, 'backlog_bytes': common.BYTES,
        }, required=['host', 'sent_bytes'], extra=True), 64),
    }, required=[], extra=True),
    'health': common.TEXT,
    'error': common.nullable(common.TEXT),
    'cpu_s': common.AMOUNT,
}, required=['epoch', 'applied_generation', 'link', 'ports', 'coflows',
             'uplink_sent_bytes'], extra=True)

_RTT = common.nullable({'type': 'number', 'minimum': 0, 'maximum': 3600})

MEASUREMENT = common.body({
    'probe_id': {'type': 'string', 'minLength': 1, 'maxLength': 64},
    'src': common.HOST, 'dst': common.HOST,
    'rate_bps': common.LINK_RATE,
    'lower_bound': {'type': 'boolean'},
    'loss': {'type': 'number', 'minimum': 0, 'maximum': 1},
    'rtt_s': _RTT, 'rtt_median_s': _RTT, 'rtt_p99_s': _RTT,
    'method': {'type': 'string', 'maxLength': 64},
}, required=['probe_id', 'src', 'dst', 'rate_bps'], extra=True)
