# SPDX-License-Identifier: Apache-2.0

"""Values that cross a process: frozen types, and what decoding checks. Pure.

Nova's plug-ins and the edge module import this package; msgspec is all that
it needs.
"""
