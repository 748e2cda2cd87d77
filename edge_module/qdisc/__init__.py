# SPDX-License-Identifier: Apache-2.0

"""Queueing on the uplink."""
