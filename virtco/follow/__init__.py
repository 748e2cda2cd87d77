# SPDX-License-Identifier: Apache-2.0

"""What Nova did, as it notifies or as it is asked."""
