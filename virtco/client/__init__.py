# SPDX-License-Identifier: Apache-2.0

"""The REST API as Python calls, for the CLI and for tools."""

from virtco.client.v1 import Client

__all__ = ['Client']
