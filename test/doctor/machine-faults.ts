/** Faults of memory, storage, PCI and limits. */
import { all, edit, faultOf, file, gone, probe, type Row } from './fault.js';
import { address, config, pciFile, type PlantedHost } from './host.js';

const limits = '/proc/self/limits';
const memlock = (bytes: string): ReturnType<typeof edit> =>
  edit(limits, /Max locked memory .*/, `Max locked memory         ${bytes}     ${bytes}     bytes`);
const refused = probe({ ioUring: () => ({ allowed: false, errno: 'EPERM' }) });
const directIo = (errno: string): ReturnType<typeof probe> =>
  probe({ directIo: () => ({ works: false, step: 'open', errno }) });
const full = {
  freeBytes: 2 ** 30,
  freeFiles: 10,
  totalFiles: 1e6,
  deviceMajor: 259,
  deviceMinor: 0,
  problem: null,
};
const release = '/proc/sys/kernel/osrelease';
const clocks = '/sys/devices/system/clocksource/clocksource0';

/** The GPU under a root port of its own. */
const farGpu = (host: PlantedHost): void => {
  const root = '/sys/devices/pci0000:80/0000:80:00.0';
  for (const name of ['vendor', 'class', 'config'])
    host.set(`${root}/0000:81:00.0/${name}`, host.files.get(pciFile(address.gpu, name))!);
  host.set(`${root}/config`, config());
  host.links.set(`/sys/bus/pci/devices/${address.gpu}`, `${root}/0000:81:00.0`);
  host.links.set('/sys/bus/pci/devices/0000:80:00.0', root);
};

const memory: Row[] = [
  [
    ...(['addon', 'not built', 'error', probe({ addonProblem: () => 'it is not built' })] as const),
    ...([/it is not built/, /npm run setup/] as const),
  ],
  [
    ...(['memlock', '8 MiB', 'error', memlock('8388608')] as const),
    ...([/8388608 bytes/, /memlock unlimited/] as const),
  ],
  [
    ...(['memlock', '64 GiB of 2 TiB', 'warning', memlock('68719476736')] as const),
    ...([/64\.00 GiB/, /LimitMEMLOCK/] as const),
  ],
  [
    ...(['huge-pages', 'none', 'warning'] as const),
    file('/sys/kernel/mm/transparent_hugepage/enabled', 'always madvise [never]'),
    ...([/are off/, /madvise/] as const),
  ],
  [
    ...(['numa-balancing', 'on', 'note', file('/proc/sys/kernel/numa_balancing', '1')] as const),
    ...([/is on, with 2 nodes/, /numa_balancing=0/] as const),
  ],
  [
    ...(['fork-safety', 'a kernel before 5.12', 'note', file(release, '5.4.0')] as const),
    ...([/Linux 5\.4/, /5\.12/, ['io-uring', 'gpudirect']] as const),
  ],
];

const storage: Row[] = [
  [
    ...(['io-uring', 'refused by seccomp', 'warning', refused] as const),
    ...([/seccomp filter/, /seccomp profile/] as const),
  ],
  [
    ...(['io-uring', 'refused by sysctl', 'warning'] as const),
    all(refused, file('/proc/sys/kernel/io_uring_disabled', '2')),
    ...([/io_uring_disabled is 2/, /sysctl -w kernel\.io_uring_disabled=0/] as const),
  ],
  [
    ...(['io-uring', 'an old kernel', 'warning', file(release, '5.15.0')] as const),
    ...([/Linux 5\.15: threads/, /5\.19/] as const),
  ],
  [
    ...(['io-uring', 'no koffi to try it', 'unknown'] as const),
    probe({ ioUring: () => ({ allowed: null, why: 'koffi could not be loaded' }) }),
    ...([/could not be tried/, /sysctl/] as const),
  ],
  [
    ...(['store-direct-io', 'no O_DIRECT', 'error', directIo('EINVAL')] as const),
    ...([/open failed with EINVAL/, /ext4/] as const),
  ],
  [
    ...(['store-direct-io', 'no permission', 'error', directIo('EACCES')] as const),
    ...([/EACCES/, /chown/] as const),
  ],
  [
    ...(['store-space', 'full', 'warning', probe({ fileSystem: () => full })] as const),
    ...([/1\.0 GiB left/, /store gc/] as const),
  ],
  [
    ...(['store-file-system', 'NFS', 'warning'] as const),
    file(
      '/proc/self/mountinfo',
      '30 1 0:50 / / rw - ext4 /dev/root rw\n31 30 0:51 / /kv rw - nfs4 server:/kv rw',
    ),
    ...([/\/kv lies on nfs4/, /NVMe/] as const),
  ],
  [
    ...(['store-file-system', 'in memory', 'warning'] as const),
    file('/proc/self/mountinfo', '30 1 0:50 / / rw - tmpfs tmpfs rw'),
    ...([/tmpfs/, /drive/] as const),
  ],
  [
    ...(['store-file-system', 'blocks of 16 KiB', 'error'] as const),
    file('/sys/dev/block/259:0/queue/logical_block_size', '16384'),
    ...([/16384 bytes/, /nvme format/] as const),
  ],
];

const pci: Row[] = [
  [
    ...(['pcie-link', 'half of the lanes', 'warning'] as const),
    file(pciFile(address.mlx5_0, 'current_link_width'), '8'),
    ...([/mlx5_0 .* x8 32 GT\/s of x16/, /slot of x16/] as const),
  ],
  [
    ...(['pcie-link', 'an older speed', 'warning'] as const),
    file(pciFile(address.mlx5_1, 'current_link_speed'), '16.0 GT/s PCIe'),
    ...([/16 GT\/s of x16 32/, /lspci/] as const),
  ],
  [
    ...(['pcie-settings', 'a small MaxReadReq', 'warning'] as const),
    file(pciFile(address.mlx5_0, 'config'), config(0x0910)),
    ...([/MaxReadReq is 128/, /5000:7000/] as const),
  ],
  [
    ...(['pcie-settings', 'no relaxed ordering', 'note'] as const),
    file(pciFile(address.mlx5_0, 'config'), config(0x5900)),
    ...([/relaxed ordering is off/, /0010:0010/] as const),
  ],
  [
    ...(['pcie-settings', 'not root', 'unknown'] as const),
    file(pciFile(address.mlx5_0, 'config'), Buffer.alloc(64)),
    ...([/cannot be read/, /as root/] as const),
  ],
  [
    ...(['gpu-nic-distance', 'another root complex', 'warning', farGpu] as const),
    ...([/another root complex/, /copyWay/] as const),
  ],
  [
    ...(['acs', 'redirects at the switch', 'warning'] as const),
    file(pciFile('0000:3c:01.0', 'config'), config(0x5910, 0x1d)),
    ...([/ACS redirects at 0000:3c:01\.0/, /setpci -s 0000:3c:01\.0 ECAP_ACS\+6\.w=0000/] as const),
  ],
  [
    ...(['gpudirect', 'closed modules, no nvidia_peermem', 'error'] as const),
    file('/proc/driver/nvidia/version', 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05'),
    ...([/nvidia_peermem is not loaded/, /modprobe nvidia_peermem/] as const),
  ],
  [
    ...(['gpudirect', 'no driver', 'error', gone('/proc/driver/nvidia')] as const),
    ...([/driver is not loaded/, /modprobe nvidia/] as const),
  ],
  [
    ...([
      'iommu',
      'translates',
      'warning',
      file(pciFile(address.mlx5_1, 'iommu_group/type'), 'DMA-FQ'),
    ] as const),
    ...([/translates for mlx5_1/, /iommu=pt/] as const),
  ],
];

const group = '/sys/fs/cgroup/pod';
const cpu: Row[] = [
  [
    ...(['nic-numa', 'the other socket', 'warning', edit('/proc/self/status', '0-63', '32-63')] as const),
    ...([/no processor of node 0/, /numactl --cpunodebind=0/] as const),
  ],
  [
    ...(['nic-numa', 'no node named', 'note', file(pciFile(address.mlx5_0, 'numa_node'), '-1')] as const),
    ...([/mlx5_0: the firmware/, /lstopo/] as const),
  ],
  [
    ...(['clock', 'hpet', 'warning', file(`${clocks}/current_clocksource`, 'hpet')] as const),
    ...([/hpet/, /echo tsc/] as const),
  ],
  [
    ...(['cpu-frequency', 'powersave', 'note'] as const),
    file('/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor', 'powersave'),
    ...([/powersave/, /cpupower/] as const),
  ],
  [
    ...(['open-files', '1024', 'warning', edit(limits, /65536/g, '1024 ')] as const),
    ...([/RLIMIT_NOFILE is 1024/, /LimitNOFILE/] as const),
  ],
  [
    ...(['cgroup', '4 GiB', 'warning', file(`${group}/memory.max`, '4294967296')] as const),
    ...([/pod\/memory\.max is 4294967296/, /--memory/] as const),
  ],
  [
    ...(['cgroup', 'half a processor', 'warning', file(`${group}/cpu.max`, '50000 100000')] as const),
    ...([/cpu\.max is 50000 100000/, /--cpus/] as const),
  ],
  [
    ...(['cgroup', 'few RDMA objects', 'warning'] as const),
    file(`${group}/rdma.max`, 'mlx5_0 hca_handle=2 hca_object=100'),
    ...([/hca_object=100/, /hca_object=max/] as const),
  ],
];

export const machineFaults = [...memory, ...storage, ...pci, ...cpu].map(faultOf);
