# SPDX-License-Identifier: Apache-2.0

"""Election of the leader among several schedulers."""
