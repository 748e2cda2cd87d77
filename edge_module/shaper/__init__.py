# SPDX-License-Identifier: Apache-2.0

"""What shapes the uplink: HTB, or earliest departure times in BPF."""
