# SPDX-License-Identifier: Apache-2.0

"""Types of single fields, which several documents share."""

from typing import Annotated

import msgspec

HOST_PATTERN = r'^[A-Za-z0-9._:@-]+\Z'

Text = Annotated[str, msgspec.Meta(max_length=255)]
LongText = Annotated[str, msgspec.Meta(max_length=4096)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Key = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Id = Annotated[str, msgspec.Meta(
    min_length=1, max_length=36, pattern=r'^[A-Za-z0-9._:-]+\Z')]
Host = Annotated[str, msgspec.Meta(
    min_length=1, max_length=255, pattern=HOST_PATTERN)]
Address = Annotated[str, msgspec.Meta(
    min_length=2, max_length=45, pattern=r'^[0-9A-Fa-f.:]+\Z')]
Mac = Annotated[str, msgspec.Meta(pattern=r'^[0-9a-f]{2}(:[0-9a-f]{2}){5}\Z')]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]
Amount = Annotated[float, msgspec.Meta(ge=0, le=1e15)]
Bytes = Annotated[float, msgspec.Meta(ge=0, le=1e21)]
#: From a byte per second, the least that a policy may tell.
LinkRate = Annotated[float, msgspec.Meta(ge=8, le=1e15)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2 ** 31 - 1)]
Generation = Annotated[int, msgspec.Meta(ge=0, le=2 ** 62)]
