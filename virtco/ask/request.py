# SPDX-License-Identifier: Apache-2.0

"""What Nova asks, as one frozen value; its schema is derived from it."""

import functools
import re
from typing import Annotated

import msgspec

from virtco.wire import fields

_HOSTS = re.compile(fields.HOST_PATTERN)
# Hints and metadata are a tenant's: virtco.hints judges what is in them.
TenantText = Annotated[
    dict[str, str | Annotated[list[str], msgspec.Meta(max_length=16)]],
    msgspec.Meta(max_length=1024)]


# Of thousands of offers none is ever part of a cycle.
class Resources(msgspec.Struct, frozen=True, forbid_unknown_fields=True,
                gc=False):
    """Of a VM, or what is left on a host."""

    vcpus: fields.Amount
    memory_mb: fields.Amount
    disk_gb: fields.Amount

    @property
    def vector(self) -> tuple[float, float, float]:
        return self.vcpus, self.memory_mb, self.disk_gb


class Offer(msgspec.Struct, frozen=True, forbid_unknown_fields=True,
            gc=False):
    """A candidate host of Nova's."""

    # Checked all at once: as a pattern it takes half of the decoding's time.
    host: Annotated[str, msgspec.Meta(
        min_length=1, max_length=255,
        extra_json_schema={'pattern': fields.HOST_PATTERN})]
    free: Resources
    node: fields.Name = ''


class ServerGroup(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    policy: Annotated[str, msgspec.Meta(
        pattern='^(soft-)?(anti-)?affinity\\Z')]
    members: Annotated[list[fields.Id], msgspec.Meta(max_length=10_000)] = []
    hosts: Annotated[list[fields.Host], msgspec.Meta(max_length=10_000)] = []
    max_per_host: Annotated[
        int, msgspec.Meta(ge=1, le=10_000)] | None = None


class Placement(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The body of ``PUT /v1/placements/{instance_uuid}``.

    :ivar instance_uuid: of the path.
    :ivar unplanned_passes: of Nova before this one.
    """

    project_id: fields.Name
    hints: TenantText
    flavor: Resources
    hosts: Annotated[list[Offer], msgspec.Meta(min_length=1,
                                               max_length=10_000)]
    metadata: TenantText = {}
    user_id: fields.Name | None = None
    display_name: Annotated[str, msgspec.Meta(max_length=4096)] | None = None
    reservation_id: fields.Text | None = None
    launch_index: fields.Count | None = None
    num_instances: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 1
    server_group: ServerGroup | None = None
    unplanned_passes: fields.Count = 0
    instance_uuid: str = ''

    def __post_init__(self) -> None:
        if not _HOSTS.match(''.join(self.host_names())):
            raise ValueError('Expected names of hosts')

    def host_names(self) -> list[str]:
        return [offer.host for offer in self.hosts]

    @functools.cached_property
    def free(self) -> dict[str, tuple[float, float, float]]:
        """What Nova says is left on each candidate host."""
        return {offer.host: offer.free.vector for offer in self.hosts}
