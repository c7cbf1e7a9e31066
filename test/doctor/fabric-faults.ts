/** Faults of RDMA devices, links and classes. */
import { all, faultOf, file, gone, probe, type Row } from './fault.js';
import { answer, dcbCommand, netdev, nic, soundTables, type PlantedHost } from './host.js';

const ib = `/sys/class/infiniband/${nic.infiniband}`;
const roce = `/sys/class/infiniband/${nic.roce}`;
const port = `${roce}/ports/1`;
const noDevices = gone('/sys/class/infiniband', '/sys/class/infiniband_verbs');
const modules = '/lib/modules/6.8.0-45-generic/modules.dep';

const cannotOpen = (host: PlantedHost): void => {
  const openError = 'opening it failed: EACCES';
  const devices = host.probes.library().devices!.map((one) => ({ ...one, openError, ports: null }));
  probe({ library: () => ({ devices, problem: null }) })(host);
};
const oneProvider = (host: PlantedHost): void => {
  const devices = host.probes.library().devices!.slice(0, 1);
  probe({ library: () => ({ devices, problem: null }) })(host);
};
const sameSubnet = (host: PlantedHost): void => {
  host.set(`${port}/gids/5`, '0000:0000:0000:0000:0000:ffff:0a00:0002');
  host.set(`${port}/gid_attrs/types/5`, 'RoCE v2');
  host.set(`${port}/gid_attrs/ndevs/5`, 'ens2');
  const routes = host.files.get('/proc/net/route') as string;
  host.set('/proc/net/route', `${routes}\nens2\t0000000A\t00000000\t0001\t0\t0\t0\t00FFFFFF`);
};
const tables = (changed: Partial<typeof soundTables>): ReturnType<typeof probe> =>
  probe({ arbitration: () => ({ tables: { ...soundTables, ...changed }, problem: null }) });
const dcb =
  (object: string, value: object) =>
  (host: PlantedHost): void =>
    void host.commands.set(dcbCommand(object), answer(value));
const noDcb = (host: PlantedHost): void => host.commands.clear();
const strict = {
  tc_bw: [33, 1, 0, 33, 0, 33, 0, 0],
  tc_tsa: ['ets', 'strict', 'ets', 'ets', 'ets', 'ets', 'ets', 'ets'],
  prio_tc: [0, 1, 2, 3, 4, 5, 6, 7],
};

const devices: Row[] = [
  [
    ...(['rdma-subsystem', 'no RDMA subsystem', 'error', noDevices] as const),
    ...([/no RDMA subsystem/, /no rdma_rxe: .*dualpath rxe/] as const),
  ],
  [
    ...(['rdma-subsystem', 'rdma_rxe and no device', 'error'] as const),
    all(noDevices, file(modules, 'kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.zst:')),
    ...([/no RDMA subsystem/, /rdma link add rxe0/] as const),
  ],
  [
    ...(['rdma-library', 'libibverbs is missing', 'error'] as const),
    probe({ library: () => ({ devices: null, problem: 'libibverbs.so.1 could not be loaded' }) }),
    ...([/could not be loaded/, /libibverbs1/] as const),
  ],
  [
    ...(['rdma-library', 'a device without its provider', 'error', oneProvider] as const),
    ...([/does not list mlx5_1/, /ibverbs-providers/] as const),
  ],
  [
    ...(['rdma-access', 'no node in the container', 'error', gone('/dev/infiniband/uverbs1')] as const),
    ...([/mlx5_1: \/dev\/infiniband\/uverbs1 is not there/, /--device \/dev\/infiniband\/uverbs1/] as const),
  ],
  [
    ...(['rdma-access', 'no ib_uverbs', 'error', gone('/sys/class/infiniband_verbs/uverbs0')] as const),
    ...([/ib_uverbs is not loaded/, /modprobe ib_uverbs/] as const),
  ],
  [
    ...(['rdma-access', 'a device that may not be opened', 'error', cannotOpen] as const),
    ...([/mlx5_0 cannot be opened: .*EACCES/, /chmod/] as const),
  ],
  [
    ...(['port-state', 'no subnet manager', 'warning', file(`${ib}/ports/1/state`, '2: INIT')] as const),
    ...([/mlx5_0 port 1 is init/, /start opensm/] as const),
  ],
  [
    ...(['port-state', 'a cable that is out', 'warning'] as const),
    all(file(`${port}/state`, '1: DOWN'), file(`${port}/phys_state`, '3: Disabled')),
    ...([/mlx5_1 port 1 is down \(physical state Disabled\)/, /ip link set ens1 up/] as const),
  ],
  [
    ...(['firmware', 'two versions', 'warning', file(`${ib}/fw_ver`, '28.36.0000')] as const),
    ...([/mlx5_0 has 28.36.0000; mlx5_1 has 28.39.1002/, /mlxfwmanager/] as const),
  ],
];

const links: Row[] = [
  [
    ...(['link-width', 'one lane', 'warning', tables({ widthActive: 1 })] as const),
    ...([/1X of 4X/, /cable/] as const),
  ],
  [
    ...(['link-speed', 'slower than the other', 'warning'] as const),
    file(`${ib}/ports/1/rate`, '200 Gb/sec (4X HDR)'),
    ...([/200 Gb\/s, others of its board at 400/, /mlxlink/] as const),
  ],
  [
    ...(['path-mtu', 'MTU 1500', 'warning', file(`/sys/class/net/${netdev}/mtu`, '1500')] as const),
    ...([/ens1 has MTU 1500/, /ip link set ens1 mtu 4200/] as const),
  ],
  [
    ...(['gid-table', 'link-local addresses only', 'warning'] as const),
    file(`${port}/gids/3`, 'fe80:0000:0000:0000:0e42:a1ff:fe65:1234'),
    ...([/link-local/, /ip address add/] as const),
  ],
  [
    ...(['gid-table', 'RoCE v1 only', 'error', file(`${port}/gid_attrs/types/3`, 'IB/RoCE v1')] as const),
    ...([/RoCE v1/, /cma_roce_mode/] as const),
  ],
  [
    ...(['gid-table', 'an empty table', 'error', gone(`${port}/gids`)] as const),
    ...([/no usable entry/, /--network host/] as const),
  ],
  [
    ...(['address-flux', 'two NICs in one subnet', 'warning', sameSubnet] as const),
    ...([/ens1 and ens2 are in one subnet/, /arp_ignore=1/, ['classes-roce']] as const),
  ],
  [
    ...(['port-errors', 'symbol errors', 'warning'] as const),
    file(`${ib}/ports/1/counters/symbol_error`, '65535'),
    ...([/symbol_error 65535/, /cable/] as const),
  ],
  [
    ...(['port-errors', 'a link that goes down', 'warning'] as const),
    file(`${port}/counters/link_downed`, '4000'),
    ...([/link_downed 4000/, /cable/] as const),
  ],
  [
    ...(['transport-errors', 'packets out of sequence', 'warning'] as const),
    file(`${port}/hw_counters/out_of_sequence`, '900000'),
    ...([/out_of_sequence 900000/, /PFC/] as const),
  ],
  [
    ...([
      'transport-errors',
      'RNR',
      'warning',
      file(`${port}/hw_counters/rnr_nak_retry_err`, '80000'),
    ] as const),
    ...([/not ready to receive/, /receiver/] as const),
  ],
  [
    ...(['congestion', 'CNPs', 'note', file(`${port}/hw_counters/rp_cnp_handled`, '9000000')] as const),
    ...([/rp_cnp_handled 9000000/, /senders/] as const),
  ],
  [
    ...(['congestion', 'xmit_wait', 'note'] as const),
    file(`${ib}/ports/1/counters/port_xmit_wait`, '900000000000'),
    ...([/port_xmit_wait/, /senders/] as const),
  ],
];

const classes: Row[] = [
  [
    ...(['classes-infiniband', 'other tables', 'warning'] as const),
    tables({ low: [{ lane: 0, weight: 64 }], highLimit: 0 }),
    ...([/low-priority table 0:64, wanted .*high-priority limit 0, wanted 240/, /opensm\.conf/] as const),
  ],
  [
    ...(['classes-infiniband', 'every SL on one lane', 'warning'] as const),
    tables({ slToVl: new Array<number>(16).fill(0) }),
    ...([/virtual lane of class kv \(SL 2\) 0, wanted 2/, /qos plan/] as const),
  ],
  [
    ...(['classes-infiniband', 'umad that may not be opened', 'unknown'] as const),
    probe({ arbitration: () => ({ tables: null, problem: 'opening the port failed (EACCES)' }) }),
    ...([/EACCES/, /as root/] as const),
  ],
  [
    ...(['classes-roce', 'no PFC', 'warning'] as const),
    dcb('pfc', { prio_pfc: new Array<boolean>(8).fill(false) }),
    ...([/priorities with PFC none, wanted 0,1,3,5/, /dcb or mlnx_qos/] as const),
  ],
  [
    ...(['classes-roce', 'no DSCP map', 'warning', dcb('app', {})] as const),
    ...([/priority of DSCP 26 0, wanted 3/, /qos plan/] as const),
  ],
  [
    ...(['classes-roce', 'strict priority for KV-Cache', 'warning', dcb('ets', strict)] as const),
    ...([/not ETS 1:strict/, /qos plan/] as const),
  ],
  [
    ...(['classes-roce', 'no ECN for KV-Cache', 'warning'] as const),
    file(`/sys/class/net/${netdev}/ecn/roce_np/enable/1`, '0'),
    ...([/ECN .*roce_np\/enable\/1\) 0, wanted 1/, /echo 1/] as const),
  ],
  [
    ...(['classes-roce', 'no dcb here', 'unknown', noDcb] as const),
    ...([/there is no command dcb/, /iproute2/] as const),
  ],
];

export const fabricFaults = [...devices, ...links, ...classes].map(faultOf);
