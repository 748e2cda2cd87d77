# SPDX-License-Identifier: Apache-2.0

"""What Nova showed as free lately, where it cannot be asked."""

import collections
import threading

from virtco.place import question as requests
from virtco.wire import placement as wire

#: Requests whose hosts are remembered; they are kept as they came.
MOST_REQUESTS = 4


class Offers:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._newest: collections.OrderedDict[
            str, list[wire.Offer]] = collections.OrderedDict()

    def note(self, request: wire.Placement) -> None:
        key = request.reservation_id or request.instance_uuid
        with self._lock:
            self._newest.pop(key, None)
            self._newest[key] = request.hosts
            if len(self._newest) > MOST_REQUESTS:
                self._newest.popitem(last=False)

    def free(self) -> dict[str, tuple[float, ...]]:
        """Map each host to its free resources in the newest request."""
        with self._lock:
            newest = list(self._newest.values())
        return {offer.host: requests.vector(offer.free)
                for offers in newest for offer in offers}
