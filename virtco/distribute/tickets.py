# SPDX-License-Identifier: Apache-2.0

"""Tells edge modules apart that have no certificate.

The REST API knows by its tokens who asks. Whoever may speak for a host gets a
ticket for it, and shows that on the connection. A ticket is of one process
and holds as long as that lives.
"""

import hmac
import secrets


class Tickets:
    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def of(self, host: str) -> str:
        return hmac.new(self._key, host.encode(), 'sha256').hexdigest()

    def is_of(self, host: str, ticket: str) -> bool:
        return hmac.compare_digest(self.of(host).encode(), ticket.encode())
