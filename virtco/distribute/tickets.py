# SPDX-License-Identifier: Apache-2.0

"""Tickets: proofs of identity for connections without a certificate. Pure.

Their key comes from the database and changes with each leader. The REST API
gives a ticket to whoever proved by a token to be an edge module's host;
processes of the controller make their own.
"""

import hmac


def of_host(key: str, host: str) -> str:
    """Return the ticket by which an edge module proves its host, in hex."""
    return _sign(key, f'host {host}')


def of_peer(key: str, name: str) -> str:
    """Return the ticket by which a process proves its name, in hex."""
    return _sign(key, f'peer {name}')


def is_same(ticket: str, shown: str) -> bool:
    """Compare in constant time."""
    return hmac.compare_digest(ticket.encode(), shown.encode())


def _sign(key: str, text: str) -> str:
    return hmac.new(key.encode(), text.encode(), 'sha256').hexdigest()
