# SPDX-License-Identifier: Apache-2.0

"""Values that cross a process: frozen types, checked when decoded. Pure.

The edge module imports this package; msgspec is all that it needs. Nova's
plug-ins do not, as Nova's process has no msgspec: they build plain values.
"""
