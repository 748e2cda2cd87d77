# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Coflows that come back: the jobs of training and how they share links.

An iteration of a job computes, then sends a coflow, and begins again. Jobs
that share links lose time when they send at once. Crux (SIGCOMM 2024) serves
those first whose GPUs wait most for a second of sending; CASSINI (NSDI 2024)
shifts jobs against each other, so that one sends while others compute.

Pure: no I/O and no clock.
"""
