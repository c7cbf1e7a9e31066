/** Memory: locking, huge pages, balancing. */
import { readNumber } from '../../host-view/index.js';
import { isOlder, type Check } from '../check.js';
import { hasCapability, softLimit } from '../limits.js';

const gib = 2 ** 30;

export const memlock: Check = {
  id: 'memlock',
  looksAt: 'RLIMIT_MEMLOCK in /proc/self/limits, CAP_IPC_LOCK',
  why: 'Registering memory with a NIC or with io_uring locks it; beyond the limit ibv_reg_mr fails with ENOMEM. An engine registers tens of GiB.',
  remedy:
    '`ulimit -l unlimited`; limits.conf `* - memlock unlimited`; systemd `LimitMEMLOCK=infinity`; containers `--ulimit memlock=-1`',
  run: ({ view }) => {
    const limit = softLimit(view, 'Max locked memory');
    if (limit === null || hasCapability(view, 'ipcLock')) return [];
    const remedy =
      'ulimit -l unlimited before starting; for good: "* - memlock unlimited" in /etc/security/limits.conf, LimitMEMLOCK=infinity in a systemd unit, --ulimit memlock=-1 for a container';
    if (limit === undefined)
      return [
        { severity: 'unknown', found: '/proc/self/limits cannot be read', remedy: 'ulimit -l shows it' },
      ];
    const total = (readMemory(view.read('/proc/meminfo').text, 'MemTotal') ?? 0) / 2;
    if (limit >= total && limit >= gib) return [];
    const severity = limit < gib ? 'error' : 'warning';
    return [
      { severity, found: `RLIMIT_MEMLOCK is ${limit} bytes (${(limit / gib).toFixed(2)} GiB)`, remedy },
    ];
  },
};

/** Bytes of a row of /proc/meminfo. */
function readMemory(text: string | null, row: string): number | undefined {
  const [, kib] = new RegExp(`^${row}:\\s+(\\d+) kB`, 'm').exec(text ?? '') ?? [];
  return kib === undefined ? undefined : Number(kib) * 1024;
}

export const hugePages: Check = {
  id: 'huge-pages',
  looksAt: '/sys/kernel/mm/transparent_hugepage/enabled, nr_hugepages',
  why: 'Without huge pages a buffer of 80 GiB is 20 million pages: registering it is slow, and the NIC’s address translation misses.',
  remedy:
    '`echo madvise > /sys/kernel/mm/transparent_hugepage/enabled`, or reserve: `sysctl vm.nr_hugepages=N`',
  run: ({ view }) => {
    const { text } = view.read('/sys/kernel/mm/transparent_hugepage/enabled');
    const reserved = view
      .list('/sys/kernel/mm/hugepages')
      .some((size) => (readNumber(view, `/sys/kernel/mm/hugepages/${size}/nr_hugepages`) ?? 0) > 0);
    if (reserved || (text !== null && !text.includes('[never]'))) return [];
    const found =
      text === null
        ? 'the kernel has no transparent huge pages, and none are reserved'
        : 'transparent huge pages are off, and none are reserved';
    const remedy =
      'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (or sysctl -w vm.nr_hugepages=N)';
    return [{ severity: 'warning', found, remedy }];
  },
};

export const numaBalancing: Check = {
  id: 'numa-balancing',
  looksAt: '/proc/sys/kernel/numa_balancing on hosts with several nodes',
  why: 'The kernel unmaps pages to see who uses them: faults in the copy loops, and threads that move away from their NIC.',
  remedy: '`sysctl kernel.numa_balancing=0`',
  run: ({ view }) => {
    const nodes = view.list('/sys/devices/system/node').filter((name) => /^node\d+$/.test(name));
    const balancing = readNumber(view, '/proc/sys/kernel/numa_balancing') ?? 0;
    if (nodes.length < 2 || balancing === 0) return [];
    return [
      {
        severity: 'note',
        found: `automatic NUMA balancing is on, with ${nodes.length} nodes`,
        remedy: 'sysctl -w kernel.numa_balancing=0',
      },
    ];
  },
};

export const forkSafety: Check = {
  id: 'fork-safety',
  looksAt: 'the kernel’s version',
  why: 'Before Linux 5.12 a child process makes registered pages copy-on-write: ibv_fork_init guards them, at the cost of slower registration.',
  remedy: 'Linux 5.12 or later',
  run: ({ kernel, devices }) =>
    devices.length > 0 && isOlder(kernel, [5, 12])
      ? [
          {
            severity: 'note',
            found: `Linux ${kernel.join('.')}: ibv_fork_init is called before memory is registered`,
            remedy: 'update to Linux 5.12 or later',
          },
        ]
      : [],
};
