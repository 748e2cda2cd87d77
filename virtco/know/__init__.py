# SPDX-License-Identifier: Apache-2.0

"""What is true now: groups, coflows, hosts, rates and debts."""
