/** Whether there is RDMA: subsystem, library, device nodes, ports. */
import { hardwareOf, isActive, type Check, type Host, type HostPort, type Problem } from '../check.js';

const softRoce = 'rdma link add rxe0 type rxe netdev eth0';

export const rdmaSubsystem: Check = {
  id: 'rdma-subsystem',
  looksAt: '/sys/class/infiniband: the kernel’s RDMA subsystem and its devices; rdma_rxe',
  why: 'Engines of several hosts move KV-Cache by RDMA only; without a device there is only the loopback transport of one process.',
  remedy:
    'Load the NIC’s driver (`modprobe mlx5_ib ib_uverbs`), or soft-RoCE for tests (`modprobe rdma_rxe`)',
  run: ({ view, devices }) => {
    if (devices.length > 0) return [];
    const subsystem = view.exists('/sys/class/infiniband');
    const found = subsystem
      ? 'the kernel has its RDMA subsystem, but no device'
      : 'the kernel has no RDMA subsystem (no /sys/class/infiniband)';
    return [{ severity: 'error', found, remedy: withoutDevice(view) }];
  },
};

function withoutDevice(view: Host['view']): string {
  const inContainer = view.exists('/.dockerenv') || view.exists('/run/.containerenv');
  if (inContainer)
    return 'load the driver on the host and start the container with --network host --device /dev/infiniband';
  const release = view.read('/proc/sys/kernel/osrelease').text ?? '';
  const { text: modules } = view.read(`/lib/modules/${release}/modules.dep`);
  const hardware = 'modprobe mlx5_ib ib_uverbs (or the driver of the NIC)';
  return modules !== null && /\/rdma_rxe\.ko/.test(modules)
    ? `${hardware}; for tests soft-RoCE: modprobe rdma_rxe && ${softRoce}`
    : `${hardware}; this kernel has no rdma_rxe: for tests use 'dualpath rxe -- COMMAND', which brings a guest that has`;
}

export const rdmaLibrary: Check = {
  id: 'rdma-library',
  looksAt: 'libibverbs.so.1, and a provider for every device',
  why: 'The data path opens libibverbs at run time; a device without its provider cannot be used.',
  remedy: 'Debian: `apt-get install libibverbs1 ibverbs-providers`',
  run: ({ view, devices }) => {
    const { devices: opened, problem } = view.probes.library();
    const remedy = 'apt-get install libibverbs1 ibverbs-providers (or rdma-core of your distribution)';
    if (opened === null) return [{ severity: 'error', found: problem, remedy }];
    return devices
      .filter(({ name }) => !opened.some((device) => device.name === name))
      .map(({ name }) => ({
        severity: 'error',
        found: `libibverbs does not list ${name}: it has no provider for it`,
        remedy,
      }));
  },
};

export const rdmaAccess: Check = {
  id: 'rdma-access',
  looksAt: '/dev/infiniband/uverbs* of every device',
  why: 'Queue pairs are made through the device’s node; in a container it is often not there.',
  remedy: '`modprobe ib_uverbs`; containers: `--device /dev/infiniband`; or group and mode of the node',
  run: ({ view, devices }) => {
    const nodes = view.list('/sys/class/infiniband_verbs');
    const { devices: opened } = view.probes.library();
    return devices.flatMap(({ name }): Problem[] => {
      const node = nodes.find((one) => view.read(`/sys/class/infiniband_verbs/${one}/ibdev`).text === name);
      if (node === undefined)
        return [
          {
            severity: 'error',
            found: `${name} has no uverbs device: ib_uverbs is not loaded`,
            remedy: 'modprobe ib_uverbs',
          },
        ];
      if (!view.exists(`/dev/infiniband/${node}`)) {
        const remedy = `start the container with --device /dev/infiniband/${node} (Kubernetes: an RDMA device plugin)`;
        return [{ severity: 'error', found: `${name}: /dev/infiniband/${node} is not there`, remedy }];
      }
      // What libibverbs says of a node that it may not open depends on its version.
      const error = view.mayOpen(`/dev/infiniband/${node}`)
        ? (opened?.find((device) => device.name === name)?.openError ?? null)
        : `this user may not read and write /dev/infiniband/${node}`;
      if (error === null) return [];
      const remedy = `chmod 0666 /dev/infiniband/${node}, or add the user to its group`;
      return [{ severity: 'error', found: `${name} cannot be opened: ${error}`, remedy }];
    });
  },
};

export const portState: Check = {
  id: 'port-state',
  looksAt: 'state and phys_state of every port',
  why: 'Only an active port carries traffic.',
  remedy: 'By state: cable, `ip link set DEV up`, or a subnet manager on the InfiniBand fabric',
  run: ({ view, devices }) => {
    const anyActive = devices.some(({ ports }) => ports.some(isActive));
    return devices.flatMap(({ name, ports, netdevs }) =>
      ports
        .filter((port) => !isActive(port))
        .map((port): Problem => {
          const physical = (view.read(`${port.folder}/phys_state`).text ?? 'unknown').replace(/^\d+: */, '');
          const severity = !anyActive ? 'error' : ports.some(isActive) ? 'note' : 'warning';
          const found = `${name} port ${port.port} is ${port.state} (physical state ${physical})`;
          return { severity, found, remedy: stateRemedy(port, physical, netdevs) };
        }),
    );
  },
};

function stateRemedy({ linkLayer, state }: HostPort, physical: string, netdevs: readonly string[]): string {
  if (linkLayer === 'infiniband' && /linkup/i.test(physical) && state !== 'down') {
    return 'the link is there, but no subnet manager has configured it: start opensm (systemctl start opensm), or look why the switch’s does not answer';
  }
  if (linkLayer === 'infiniband')
    return /disabled/i.test(physical)
      ? 'the port is disabled: ibportstate -D 0 PORT enable'
      : 'no signal: check cable, transceiver and the port at the other end (mlxlink -d DEVICE)';
  const netdev = netdevs[0] ?? 'DEV';
  return `ip link set ${netdev} up; if it stays down check cable and switch port (ethtool ${netdev})`;
}

export const firmware: Check = {
  id: 'firmware',
  looksAt: 'fw_ver of NICs with the same board_id',
  why: 'NICs of one kind with different firmware differ in features and in bugs; a fault then shows on some ports only.',
  remedy: 'Bring them to one version (`mlxfwmanager`, `fwupdmgr`)',
  run: (host) => {
    const versions = new Map<string, Map<string, string[]>>();
    for (const { name, folder } of hardwareOf(host)) {
      const board = host.view.read(`${folder}/board_id`).text;
      const version = host.view.read(`${folder}/fw_ver`).text;
      if (board === null || version === null) continue;
      const ofBoard = versions.get(board) ?? new Map<string, string[]>();
      ofBoard.set(version, [...(ofBoard.get(version) ?? []), name]);
      versions.set(board, ofBoard);
    }
    return [...versions]
      .filter(([, ofBoard]) => ofBoard.size > 1)
      .map(([board, ofBoard]) => ({
        severity: 'warning',
        found: `${board}: ${[...ofBoard].map(([version, names]) => `${names.join(', ')} has ${version}`).join('; ')}`,
        remedy: 'bring them to one version: mlxfwmanager --online -u -d DEVICE, then a reset (mlxfwreset)',
      }));
  },
};
