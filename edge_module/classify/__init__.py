# SPDX-License-Identifier: Apache-2.0

"""Backends that put a VM's packets into the class of their coflow."""
