# SPDX-License-Identifier: Apache-2.0

"""Commands of the cloud."""

import json
import subprocess
import sys


def run(*words, check=True):
    done = subprocess.run(
        [sys.executable, '-m', 'virtco_lab.cloud.command', *words], text=True,
        capture_output=True)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def openstack(*words):
    return json.loads(run('openstack', *words, '-f', 'json').stdout)
