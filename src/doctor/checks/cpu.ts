/** Clock, frequency, limits of processes and groups, NUMA places of NICs. */
import { readNumber, type HostView } from '../../host-view/index.js';
import { hardwareOf, type Check, type Problem } from '../check.js';
import { cpuList, softLimit, statusField } from '../limits.js';

const slowClocks = ['hpet', 'acpi_pm', 'jiffies', 'refined-jiffies'];

export const clock: Check = {
  id: 'clock',
  looksAt: 'current_clocksource',
  why: 'Links and deadlines read the clock constantly: a clock source without vDSO costs a system call and a slow device access each time.',
  remedy:
    'Boot with `tsc=reliable` where the processor’s TSC is sound; in a virtual machine give it the host’s clock (kvm-clock)',
  run: ({ view }) => {
    const folder = '/sys/devices/system/clocksource/clocksource0';
    const { text: current } = view.read(`${folder}/current_clocksource`);
    const available = view.read(`${folder}/available_clocksource`).text ?? '';
    if (current === null || !slowClocks.includes(current)) return [];
    const better = available.split(/\s+/).find((name) => name !== '' && !slowClocks.includes(name));
    // Nothing better is offered by an emulated machine, which nobody measures on.
    if (better === undefined && /hypervisor/.test(view.read('/proc/cpuinfo').text ?? '')) return [];
    const remedy =
      better === undefined
        ? "boot with tsc=reliable if 'dmesg | grep -i tsc' shows that the TSC was given up without need"
        : `echo ${better} > ${folder}/current_clocksource`;
    return [{ severity: 'warning', found: `the clock source is ${current}`, remedy }];
  },
};

export const cpuFrequency: Check = {
  id: 'cpu-frequency',
  looksAt: 'scaling_governor of every processor',
  why: 'Threads here sleep until there is work: a governor that stays low gives the first microseconds of each burst a slow core.',
  remedy: '`cpupower frequency-set -g performance`',
  run: ({ view }) => {
    const base = '/sys/devices/system/cpu';
    const slow = view
      .list(base)
      .filter((name) => /^cpu\d+$/.test(name))
      .filter((name) => view.read(`${base}/${name}/cpufreq/scaling_governor`).text === 'powersave');
    if (slow.length === 0) return [];
    const remedy = 'cpupower frequency-set -g performance';
    return [{ severity: 'note', found: `${slow.length} processors have the governor powersave`, remedy }];
  },
};

const wantedFiles = 16_384;

export const openFiles: Check = {
  id: 'open-files',
  looksAt: 'RLIMIT_NOFILE in /proc/self/limits',
  why: 'Connections, shared doors and requests of the proxy are file descriptors each; at the limit new ones are refused.',
  remedy: '`ulimit -n 65536`; systemd `LimitNOFILE=65536`; containers `--ulimit nofile=65536`',
  run: ({ view }) => {
    const limit = softLimit(view, 'Max open files');
    if (limit === null || limit === undefined || limit >= wantedFiles) return [];
    const remedy =
      'ulimit -n 65536; LimitNOFILE=65536 in a systemd unit; --ulimit nofile=65536 for a container';
    return [{ severity: 'warning', found: `RLIMIT_NOFILE is ${limit}; ${wantedFiles} are wanted`, remedy }];
  },
};

const wantedGroup = { memoryBytes: 16 * 2 ** 30, processors: 2, tasks: 1024, objects: 4096 } as const;

export const controlGroup: Check = {
  id: 'cgroup',
  looksAt:
    'memory.max, cpu.max, pids.max and rdma.max of this process’s control group (v2) and of those above it',
  why: 'Buffers count against the group’s memory, a CPU quota stops the reactor in the midst of a burst, rdma.max refuses queue pairs and memory regions.',
  remedy:
    'Raise the container’s limits (`--memory`, `--cpus`, `--pids-limit`), `echo "DEVICE hca_object=max" > rdma.max`',
  run: ({ view }) => groupsOf(view).flatMap((group) => groupProblems(view, group)),
};

/** This group and those above it, as /sys/fs/cgroup shows them. */
function groupsOf(view: HostView): string[] {
  const [, path = '/'] = /^0::(.*)$/m.exec(view.read('/proc/self/cgroup').text ?? '') ?? [];
  const parts = path.split('/').filter((part) => part !== '' && part !== '..');
  return parts.reduce<string[]>((all, part) => [...all, `${all.at(-1)!}/${part}`], ['/sys/fs/cgroup']);
}

function groupProblems(view: HostView, group: string): Problem[] {
  const problems: Problem[] = [];
  const add = (file: string, text: string | null, remedy: string): void =>
    void problems.push({ severity: 'warning', found: `${group}/${file} is ${text}`, remedy });
  const small = (file: string, wanted: number): string | null => {
    const { text } = view.read(`${group}/${file}`);
    return text !== null && /^\d+$/.test(text) && Number(text) < wanted ? text : null;
  };
  const memory = small('memory.max', wantedGroup.memoryBytes);
  if (memory !== null) add('memory.max', memory, 'raise the limit (--memory, Kubernetes: limits.memory)');
  const tasks = small('pids.max', wantedGroup.tasks);
  if (tasks !== null) add('pids.max', tasks, 'raise the limit (--pids-limit)');
  const cpu = view.read(`${group}/cpu.max`).text;
  const [, quota, period] = /^(\d+) (\d+)$/.exec(cpu ?? '') ?? [];
  if (quota !== undefined && Number(quota) < wantedGroup.processors * Number(period))
    add(
      'cpu.max',
      cpu,
      `give it at least ${wantedGroup.processors} processors (--cpus), or none of a quota (--cpuset-cpus)`,
    );
  for (const line of (view.read(`${group}/rdma.max`).text ?? '').split('\n')) {
    const [, device, objects] = /^(\S+).*hca_object=(\d+)/.exec(line) ?? [];
    if (objects !== undefined && Number(objects) < wantedGroup.objects)
      add('rdma.max', line, `echo "${device} hca_handle=max hca_object=max" > ${group}/rdma.max`);
  }
  return problems;
}

export const nicNuma: Check = {
  id: 'nic-numa',
  looksAt: 'numa_node of NICs beside Cpus_allowed_list of this process',
  why: 'A reactor on another socket than its NIC crosses the inter-socket link for every doorbell, completion and copy.',
  remedy:
    '`numactl --cpunodebind=N`, or the container’s `--cpuset-cpus`; BIOS: report NUMA nodes of PCI slots',
  run: (host) => {
    const { view } = host;
    const nodes = view.list('/sys/devices/system/node').filter((name) => /^node\d+$/.test(name));
    if (nodes.length < 2) return [];
    const allowed = cpuList(statusField(view, 'Cpus_allowed_list') ?? '');
    return hardwareOf(host).flatMap(({ name, folder }): Problem[] => {
      const node = readNumber(view, `${folder}/device/numa_node`);
      if (node === null) return [];
      if (node < 0) {
        const remedy = 'update the BIOS, or bind by hand to the socket that the slot belongs to (lstopo)';
        return [{ severity: 'note', found: `${name}: the firmware does not say its NUMA node`, remedy }];
      }
      const local = cpuList(view.read(`/sys/devices/system/node/node${node}/cpulist`).text ?? '');
      if (allowed.size === 0 || [...local].some((cpu) => allowed.has(cpu))) return [];
      const found = `this process may run on no processor of node ${node}, where ${name} is`;
      return [
        { severity: 'warning', found, remedy: `numactl --cpunodebind=${node} --membind=${node} COMMAND` },
      ];
    });
  },
};
