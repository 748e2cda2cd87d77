# SPDX-License-Identifier: Apache-2.0

"""The tiers of the tests: their commands, gears and budgets of CPU time."""

import dataclasses
import os

PYTEST = ('python', '-m', 'pytest', '-q', '--durations=10',
          '--durations-min=0.5')
CORES = os.cpu_count() or 2
#: More processes than cores: many tests wait for timers of the product.
WAITING = 2 * CORES


@dataclasses.dataclass(frozen=True)
class Tier:
    """One tier of the tests.

    :ivar commands: run one after the other, in the root of the project.
    :ivar budget_cpu_s: CPU seconds of user and system, all processes; the
        tier fails beyond it. None: no limit, since it downloads or builds.
    :ivar part: of the full gear, 1 to 3.
    :ivar is_default: whether it runs when nothing is named.
    :ivar is_together: its commands run beside each other.
    :ivar environment: variables for the full gear only.
    """

    commands: tuple[tuple[str, ...], ...]
    budget_cpu_s: float | None = None
    part: int = 1
    is_default: bool = False
    is_together: bool = False
    environment: tuple[tuple[str, str], ...] = ()


def _spread(tier: str, n_processes: int, *args: str) -> tuple[str, ...]:
    """A file's tests share their servers, so one process runs them."""
    return (*PYTEST, '-n', str(n_processes), '--dist', 'loadfile', *args,
            f'tests/{tier}')


TIERS = {
    'style': Tier((('flake8',), ('mypy',), ('tools/check_shell',),
                   ('tools/check_commits',)),
                  budget_cpu_s=70, is_default=True, is_together=True),
    'unit': Tier(
        ((*PYTEST, '-n', str(CORES + 1), '--dist', 'worksteal', 'tests/unit'),
         ), budget_cpu_s=330, is_default=True),
    'mutants': Tier((('tools/mutate', '--lines', '40', '--budget-s', '90',
                      '--least', '80'),), budget_cpu_s=130, is_default=True),
    'functional': Tier((_spread('functional', WAITING),), budget_cpu_s=500,
                       is_default=True),
    'faults': Tier((_spread('faults', WAITING),), budget_cpu_s=300,
                   is_default=True,
                   environment=(('VIRTCO_FAULTS', 'full'),), part=3),
    'netns': Tier(
        # What times packets has the machine for itself.
        ((*PYTEST, '-n', str(WAITING), '-m', 'not real_time',
          'tests/netns'),
         (*PYTEST, '-m', 'real_time', 'tests/netns')),
        budget_cpu_s=300, is_default=True),
    'docs': Tier((('sphinx-build', '-q', '-W', '-b', 'html', 'doc/source',
                   'doc/build/html'),)),
    'kernel': Tier((('tools/kernel_vm', *PYTEST, 'tests/kernel'),), part=2),
    'wheels': Tier(((*PYTEST, 'tests/wheels'),), part=2),
    'cloud': Tier(
        # Installs what the cloud needs beside the other extras.
        (('tools/cloud', '--help'), (*PYTEST, 'tests/cloud')), part=2),
    'install': Tier(
        # Debian in a container: the pages, followed on a machine of its own.
        (('env', 'DEBIAN_FRONTEND=noninteractive', 'apt-get', 'install', '-y',
          '-q', '--no-install-recommends', 'debootstrap',
          'systemd-container'), (*PYTEST, 'tests/install')), part=2),
    'evaluation': Tier((
        (*PYTEST, 'tests/evaluation/sim/test_reproduced.py'),)),
    'discovery': Tier(((*PYTEST, '-s', 'tests/discovery'),), part=2),
    'mpi': Tier((('bash', 'tools/setup', 'mpi'), (*PYTEST, 'tests/mpi')),
                part=2),
}
N_PARTS = max(tier.part for tier in TIERS.values())


def default() -> list[str]:
    return [name for name, tier in TIERS.items() if tier.is_default]


def of_part(part: int) -> list[str]:
    return [name for name, tier in TIERS.items() if tier.part == part]
