# SPDX-License-Identifier: Apache-2.0

"""What the helper does for the agent, and what it refuses.

The agent may be in somebody else's hands. So every call is held against what
this module's own code asks for, on the configured uplink: messages by type,
device and kind, commands of nft word by word. Nothing here trusts what the
agent says about itself.
"""

from collections.abc import Callable
import dataclasses
import functools
import re

from oslo_config import cfg

from edge_module.privileged import devices
from edge_module.privileged.owned import Refused

# Of one call: what the largest policy asks for, and some more.
_MOST_TEXT = 256 * 1024 * 1024

_TABLE = 'netdev virtco'
_NAME = r'[a-z0-9_]{1,32}'
_DEV = r'[A-Za-z0-9][A-Za-z0-9_.-]{0,14}'
_WORD = (r'(?:meta|priority|set|length|l4proto|ip6?|saddr|daddr|protocol|'
         r'nexthdr|frag-off|iif|th|dport|tcp|map|goto|control[46]|'
         r'classify|ether|return|add|update|id|==|!=|:|0[01](?::00){5}|'
         r'@[a-z0-9_,]{1,40}|0x[0-9a-f]{1,8}|[0-9a-f]{1,5}(?::[0-9a-f]{1,4})?'
         r'|<=|&|\.|\{|\}),?')
_TOKEN = re.compile(_WORD)
_RULE = re.compile(rf'add rule {_TABLE} (?:classify|unmanaged|control[46]) '
                   rf'([^"]+) '
                   rf'comment "{_NAME}"')
_NFT = re.compile('|'.join((
    rf'(?:add|delete|list) table {_TABLE}',
    rf'add map {_TABLE} {_NAME} \{{ type [a-z0-9_ .]{{1,120}} : classid; '
    rf'(?:counter; )?\}}',
    rf'add set {_TABLE} ingress_seen \{{ type ether_addr; size \d{{1,5}}; '
    r'timeout \d{1,3}s; flags dynamic,timeout; \}',
    rf'list set {_TABLE} ingress_seen',
    rf'add set {_TABLE} peers(?P<ip>[46])_\d{{1,10}} \{{ type '
    r'ipv(?P=ip)_addr; size \d{1,5}; timeout \d{1,3}s; '
    r'flags dynamic,timeout; counter; \}',
    rf'delete set {_TABLE} peers[46]_\d{{1,10}}',
    rf'list sets table {_TABLE}',
    rf'list map {_TABLE} (?:in|e)gress_(?:port|pair)[46]',
    rf'add map {_TABLE} (?:in|e)gress_frag[46] \{{ typeof '
    r'(?:iif \. )?(?:ip saddr \. ip daddr \. ip id|@nh,256,64 \. '
    r'@nh,352,32) : meta priority; size \d{1,5}; timeout \d{1,3}s; '
    r'flags dynamic,timeout; \}',
    rf'add chain {_TABLE} (?:classify|unmanaged|control[46])',
    rf'flush chain {_TABLE} (?:classify|unmanaged)',
    rf'(?:add|delete) element {_TABLE} {_NAME} '
    r'\{ [0-9a-fA-Ftcpud.: ,]+ \}',
    rf'add chain {_TABLE} dev_(?P<index>\d{{1,10}})_(?P<dev>{_DEV}) '
    r'\{ type filter hook (?:ingress|egress) device "(?P=dev)" priority 0; '
    r'\}',
    rf'add rule {_TABLE} dev_\d{{1,10}}_{_DEV} '
    r'(?:goto classify|meta priority set 1:7[0-9a-f]{3} jump classify|'
    r'meta priority 1:7[0-9a-f]{3} (?:goto unmanaged|jump control[46])|'
    r'meta priority 1:7[0-9a-f]{3} update @peers[46]_\d{1,10} '
    r'\{ ip6? daddr \})',
    rf'delete chain {_TABLE} dev_\d{{1,10}}_{_DEV}')))

@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """What the helper's own configuration names."""

    uplink_dev: str
    may_be_port: Callable[[str], bool] = devices.may_be_port

    # -- nftables ----------------------------------------------------------

    def check_nft(self, commands: str) -> None:
        if len(commands) > _MOST_TEXT:
            raise Refused(f'{len(commands)} characters')
        for line in commands.removesuffix('\n').split('\n'):
            found = _NFT.fullmatch(line)
            if found is None and not _is_rule(line) or (
                    found is not None and not self._may_hook(found['dev'])):
                raise Refused(f'nft command {line[:80]!r}')

    def _may_hook(self, dev: str | None) -> bool:
        return dev in (None, self.uplink_dev) or self.may_be_port(str(dev))

def _is_rule(line: str) -> bool:
    found = _RULE.fullmatch(line)
    return found is not None and all(
        _TOKEN.fullmatch(token) for token in found[1].split(' '))


@functools.cache
def configured() -> Limits:
    """As the helper itself reads the configuration."""
    from edge_module import edge_options as conf
    conf.register_opts(cfg.CONF)
    options = cfg.CONF.edge
    return Limits(options.uplink_dev or '')
