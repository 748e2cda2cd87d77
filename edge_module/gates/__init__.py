# SPDX-License-Identifier: Apache-2.0

"""Gates of periodic coflows: kept by the counters of this host alone."""
