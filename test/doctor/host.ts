/** A host in a directory tree: two NICs (InfiniBand, RoCE), a GPU and a drive under one PCIe switch, all in order. */
import { mkdirSync, mkdtempSync, rmdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';
import { FileView, type CommandAnswer, type HostProbes, type PortTables } from '../../src/host-view/index.js';
import { arbitrationOf, defaultQos, ethernetSettings, slToVlOf } from '../../src/qos/index.js';

type Content = string | Buffer;

const switchPath = '/sys/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0';
const places: Readonly<Record<string, string>> = {
  '0000:3a:00.0': '/sys/devices/pci0000:3a/0000:3a:00.0',
  '0000:3b:00.0': switchPath,
  '0000:3c:00.0': `${switchPath}/0000:3c:00.0`,
  '0000:3c:01.0': `${switchPath}/0000:3c:01.0`,
  '0000:3c:02.0': `${switchPath}/0000:3c:02.0`,
  '0000:3d:00.0': `${switchPath}/0000:3c:00.0/0000:3d:00.0`,
  '0000:3e:00.0': `${switchPath}/0000:3c:01.0/0000:3e:00.0`,
  '0000:3f:00.0': `${switchPath}/0000:3c:02.0/0000:3f:00.0`,
  '0000:5a:00.0': '/sys/devices/pci0000:5a/0000:5a:00.0',
};
export const nic = { infiniband: 'mlx5_0', roce: 'mlx5_1' } as const;
export const address = { mlx5_0: '0000:3d:00.0', gpu: '0000:3e:00.0', mlx5_1: '0000:3f:00.0' } as const;
export const netdev = 'ens1';
const drive = '0000:5a:00.0';

/** The file of a PCI function. */
export const pciFile = (name: string, file: string): string => `${places[name]}/${file}`;

/** Configuration space with PCI Express (Device Control) and ACS (control). */
export function config(deviceControl = 0x5910, acs = 0): Buffer {
  const bytes = Buffer.alloc(4096);
  bytes[0x34] = 0x60;
  bytes[0x60] = 0x10;
  bytes.writeUInt16LE(deviceControl, 0x68);
  bytes.writeUInt32LE(0x0001_000d, 0x100);
  bytes.writeUInt16LE(acs, 0x106);
  return bytes;
}

export interface PlantedHost {
  readonly files: Map<string, Content>;
  readonly links: Map<string, string>;
  readonly commands: Map<string, CommandAnswer>;
  probes: HostProbes;
  readonly set: (path: string, content: Content) => void;
  readonly remove: (path: string) => void;
}

type Entry = readonly [path: string, content: Content];

function counterFiles(port: string): Entry[] {
  const zero = ['symbol_error', 'link_downed', 'link_error_recovery', 'port_rcv_errors'];
  const few = ['out_of_sequence', 'packet_seq_err', 'rnr_nak_retry_err', 'np_cnp_sent', 'rp_cnp_handled'];
  return [
    ...zero.map((name): Entry => [`${port}/counters/${name}`, '0']),
    [`${port}/counters/port_xmit_packets`, '500000000'],
    [`${port}/counters/port_rcv_packets`, '500000000'],
    [`${port}/counters/port_xmit_wait`, '100'],
    // A few in a billion packets: in order.
    ...few.map((name): Entry => [`${port}/hw_counters/${name}`, '3']),
  ];
}

function device(name: string, facts: Readonly<Record<string, string>>): Entry[] {
  const folder = `/sys/class/infiniband/${name}`;
  const port = `${folder}/ports/1`;
  return [
    [`${folder}/node_guid`, '0c42:a103:0065:1234'],
    [`${folder}/board_id`, 'MT_0000000838'],
    [`${folder}/fw_ver`, '28.39.1002'],
    [`${port}/state`, '4: ACTIVE'],
    [`${port}/phys_state`, '5: LinkUp'],
    [`${port}/lid`, '0x1'],
    [`${port}/rate`, '400 Gb/sec (4X NDR)'],
    ...Object.entries(facts).map(([file, text]): Entry => [`${port}/${file}`, text]),
    ...counterFiles(port),
    [`/sys/class/infiniband_verbs/uverbs${name.slice(-1)}/ibdev`, name],
    [`/dev/infiniband/uverbs${name.slice(-1)}`, ''],
  ];
}

const pciFiles = (): Entry[] =>
  Object.entries(places).flatMap(([name, place]): Entry[] => [
    [`${place}/config`, config()],
    [`${place}/vendor`, name === address.gpu ? '0x10de' : '0x15b3'],
    [`${place}/class`, name === address.gpu ? '0x030200' : '0x020700'],
    [`${place}/current_link_width`, '16'],
    [`${place}/max_link_width`, '16'],
    [`${place}/current_link_speed`, '32.0 GT/s PCIe'],
    [`${place}/max_link_speed`, '32.0 GT/s PCIe'],
    [`${place}/numa_node`, '0'],
    [`${place}/iommu_group/type`, 'identity'],
  ]);

const deviceFiles = (): Entry[] => [
  ...device(nic.infiniband, {
    link_layer: 'InfiniBand',
    'gids/0': 'fe80:0000:0000:0000:0c42:a103:0065:1234',
  }),
  ...device(nic.roce, {
    link_layer: 'Ethernet',
    'gids/3': '0000:0000:0000:0000:0000:ffff:0a00:0001',
    'gid_attrs/types/3': 'RoCE v2',
    'gid_attrs/ndevs/3': netdev,
  }),
];

const routes = `Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n${netdev}\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF`;
const limits = [
  'Limit                     Soft Limit           Hard Limit           Units',
  'Max open files            65536                65536                files',
  'Max locked memory         unlimited            unlimited            bytes',
].join('\n');

const machineFiles = (): Entry[] => [
  [`/sys/class/net/${netdev}/mtu`, '9000'],
  ['/sys/devices/system/node/node0/cpulist', '0-31'],
  ['/sys/devices/system/node/node1/cpulist', '32-63'],
  ['/sys/devices/system/clocksource/clocksource0/current_clocksource', 'tsc'],
  ['/sys/devices/system/clocksource/clocksource0/available_clocksource', 'tsc hpet acpi_pm'],
  ['/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor', 'performance'],
  ['/sys/kernel/mm/transparent_hugepage/enabled', 'always [madvise] never'],
  ['/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages', '0'],
  ['/sys/fs/cgroup/pod/memory.max', 'max'],
  ['/sys/fs/cgroup/pod/cpu.max', 'max 100000'],
  ['/sys/dev/block/259:0/queue/logical_block_size', '512'],
  ['/sys/dev/block/259:0/queue/rotational', '0'],
  ['/proc/sys/kernel/osrelease', '6.8.0-45-generic'],
  ['/proc/sys/kernel/numa_balancing', '0'],
  ['/proc/sys/kernel/io_uring_disabled', '0'],
  ['/proc/sys/net/ipv4/conf/all/arp_ignore', '0'],
  ['/proc/cpuinfo', 'flags : fpu tsc'],
  ['/proc/meminfo', 'MemTotal:       2113550336 kB'],
  ['/proc/self/cgroup', '0::/pod'],
  ['/proc/self/status', 'CapEff:\t0000000000000000\nSeccomp:\t2\nCpus_allowed_list:\t0-63'],
  ['/proc/self/limits', limits],
  ['/proc/self/mountinfo', '30 1 259:0 / / rw,noatime shared:1 - ext4 /dev/nvme0n1 rw'],
  ['/proc/net/route', routes],
  ['/proc/driver/nvidia/version', 'NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15'],
];

export const soundTables: PortTables = {
  ...arbitrationOf(defaultQos),
  slToVl: slToVlOf(defaultQos),
  lanes: 4,
  widthActive: 4,
  widthSupported: 4,
};

/** The command line that asks for an object of dcb. */
export const dcbCommand = (object: string): string => `dcb -j -N ${object} show dev ${netdev}`;
export const answer = (value: object): CommandAnswer => ({ output: JSON.stringify(value), problem: null });

function commands(): Map<string, CommandAnswer> {
  const { priorityOfDscp, lossless, bandwidth } = ethernetSettings(defaultQos);
  const ets = { tc_bw: bandwidth, tc_tsa: bandwidth.map(() => 'ets'), prio_tc: [0, 1, 2, 3, 4, 5, 6, 7] };
  return new Map([
    [dcbCommand('app'), answer({ dscp_prio: priorityOfDscp })],
    [dcbCommand('pfc'), answer({ pfc_cap: 8, prio_pfc: lossless })],
    [dcbCommand('ets'), answer(ets)],
  ]);
}

const probes = (): HostProbes => {
  const opened = (name: string): { name: string; guid: string; openError: null; ports: never[] } => ({
    ...{ name, guid: '', openError: null, ports: [] },
  });
  return {
    library: () => ({ devices: [opened(nic.infiniband), opened(nic.roce)], problem: null }),
    ioUring: () => ({ allowed: true }),
    directIo: () => ({ works: true, alignmentBytes: 512 }),
    fileSystem: () => ({
      ...{ freeBytes: 2 ** 41, freeFiles: 9e6, totalFiles: 1e7 },
      ...{ deviceMajor: 259, deviceMinor: 0, problem: null },
    }),
    addonProblem: () => null,
    arbitration: () => ({ tables: soundTables, problem: null }),
  };
};

/** Everything in order. */
export function soundHost(): PlantedHost {
  const files = new Map<string, Content>([...pciFiles(), ...deviceFiles(), ...machineFiles()]);
  const links = new Map<string, string>();
  for (const [name, place] of Object.entries(places)) links.set(`/sys/bus/pci/devices/${name}`, place);
  for (const name of [nic.infiniband, nic.roce] as const)
    links.set(`/sys/class/infiniband/${name}/device`, places[address[name]]!);
  links.set('/sys/class/nvme/nvme0/device', places[drive]!);
  const removeFrom = (map: Map<string, unknown>, path: string): void => {
    for (const one of [...map.keys()]) if (one === path || one.startsWith(`${path}/`)) map.delete(one);
  };
  return {
    ...{ files, links, commands: commands(), probes: probes() },
    set: (path, content) => void files.set(path, content),
    remove: (path) => {
      removeFrom(files, path);
      removeFrom(links, path);
    },
  };
}

class PlantedView extends FileView {
  readonly #commands: PlantedHost['commands'];

  constructor(root: string, host: PlantedHost) {
    super(root, host.probes);
    this.#commands = host.commands;
  }

  override command(name: string, ...args: readonly string[]): CommandAnswer {
    const line = [name, ...args].join(' ');
    return this.#commands.get(line) ?? { output: null, problem: `there is no command ${name} here` };
  }
}

/** One tree for all hosts of a test file: only what differs from the host before is written. */
export class HostTree {
  readonly #root = mkdtempSync(join(tmpdir(), 'dualpath-host-'));
  #files: ReadonlyMap<string, Content> = new Map();
  #links: ReadonlyMap<string, string> = new Map();

  view(host: PlantedHost): FileView {
    const isGone = (path: string): boolean => !host.files.has(path) && !host.links.has(path);
    for (const path of [...this.#files.keys(), ...this.#links.keys()]) if (isGone(path)) this.#remove(path);
    for (const [path, content] of host.files) {
      const before = this.#files.get(path);
      if (before === content || (before instanceof Buffer && before.equals(Buffer.from(content)))) continue;
      this.#write(path, () => writeFileSync(join(this.#root, path), content));
    }
    for (const [path, target] of host.links) {
      if (this.#links.get(path) === target) continue;
      rmSync(join(this.#root, path), { force: true });
      const from = join(this.#root, dirname(path));
      this.#write(path, () => symlinkSync(relative(from, join(this.#root, target)), join(this.#root, path)));
    }
    this.#files = new Map(host.files);
    this.#links = new Map(host.links);
    return new PlantedView(this.#root, host);
  }

  close(): void {
    rmSync(this.#root, { recursive: true, force: true });
  }

  #write(path: string, write: () => void): void {
    mkdirSync(join(this.#root, dirname(path)), { recursive: true });
    write();
  }

  /** With the folders that are empty then: a folder that is there says something, too. */
  #remove(path: string): void {
    rmSync(join(this.#root, path), { force: true });
    for (let folder = dirname(path); folder !== '/'; folder = dirname(folder)) {
      try {
        rmdirSync(join(this.#root, folder));
      } catch {
        return;
      }
    }
  }
}
