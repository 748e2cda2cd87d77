# SPDX-License-Identifier: Apache-2.0

"""Which of several schedulers leads."""
