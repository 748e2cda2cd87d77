# SPDX-License-Identifier: Apache-2.0

"""Live state: groups, coflows in flight, hosts, counters and rates."""
