/** Links and paths of ports: width, speed, MTU, GIDs. */
import { readNumber } from '../../host-view/index.js';
import { isActive, type Check, type Host, type HostDevice, type HostPort, type Problem } from '../check.js';

interface Rate {
  readonly gbitPerS: number;
  readonly lanes: number;
}

/** "100 Gb/sec (4X EDR)". */
function rateOf({ view }: Host, port: HostPort): Rate | null {
  const [, rate, lanes] =
    /^([\d.]+) Gb\/sec \((\d+)X/.exec(view.read(`${port.folder}/rate`).text ?? '') ?? [];
  return rate === undefined ? null : { gbitPerS: Number(rate), lanes: Number(lanes) };
}

const activePorts = ({ devices }: Host): [HostDevice, HostPort][] =>
  devices.flatMap((device) =>
    device.ports.filter(isActive).map((port): [HostDevice, HostPort] => [device, port]),
  );

const usualLanes = 4;

export const linkWidth: Check = {
  id: 'link-width',
  looksAt: 'lanes of InfiniBand links (`rate`; umad: LinkWidthSupported)',
  why: 'A link that came up with fewer lanes has a half or a quarter of its bandwidth, and every flow over it slows its peers.',
  remedy: 'Reseat or replace the cable; reset the port (`ibportstate -D 0 PORT reset`)',
  run: (host) =>
    activePorts(host).flatMap(([{ name }, port]): Problem[] => {
      if (port.linkLayer !== 'infiniband') return [];
      const { tables } = host.view.probes.arbitration(name, port.port);
      const lanes = tables?.widthActive ?? rateOf(host, port)?.lanes ?? usualLanes;
      const possible = tables?.widthSupported ?? usualLanes;
      if (lanes >= possible) return [];
      const found = `${name} port ${port.port} runs with ${lanes}X of ${possible}X`;
      const remedy = `reseat or replace its cable, then ibportstate -D 0 ${port.port} reset`;
      return [{ severity: 'warning', found, remedy }];
    }),
};

export const linkSpeed: Check = {
  id: 'link-speed',
  looksAt: '`rate` of ports beside other ports of the same board',
  why: 'Ranks of one engine wait for the slowest link.',
  remedy: 'Same cable type and switch port speed; forced speeds off (`mlxlink`, `ethtool -s DEV autoneg on`)',
  run: (host) => {
    const fastest = new Map<string, number>();
    const boardOf = ({ folder, isSoftware, name }: HostDevice): string =>
      isSoftware ? name : (host.view.read(`${folder}/board_id`).text ?? name);
    const ports = activePorts(host);
    for (const [device, port] of ports) {
      const board = boardOf(device);
      const rate = rateOf(host, port)?.gbitPerS ?? 0;
      fastest.set(board, Math.max(rate, fastest.get(board) ?? 0));
    }
    return ports.flatMap(([device, port]): Problem[] => {
      const rate = rateOf(host, port)?.gbitPerS;
      const best = fastest.get(boardOf(device))!;
      if (rate === undefined || rate >= best) return [];
      const found = `${device.name} port ${port.port} runs at ${rate} Gb/s, others of its board at ${best} Gb/s`;
      const remedy = `compare cables and switch ports; mlxlink -d ${device.name} shows what was negotiated`;
      return [{ severity: 'warning', found, remedy }];
    });
  },
};

const wantedMtuBytes = 4096;
/** RoCE v2 adds up to 104 bytes of headers to a path MTU's payload. */
const netdevMtuBytes = 4200;

export const pathMtu: Check = {
  id: 'path-mtu',
  looksAt: 'the active path MTU of ports, the MTU of their network devices',
  why: 'The smaller the packets, the more of them: at 1024 bytes a NIC’s packet rate, not its link, limits transfers. Both sides use the smaller MTU.',
  remedy:
    '`ip link set DEV mtu 4200` or more here, on the peer and on every switch between; InfiniBand: MTU 5 (4096) in the partition',
  run: (host) =>
    activePorts(host).flatMap(([{ name, netdevs }, port]): Problem[] => {
      const isInfiniBand = port.linkLayer === 'infiniband';
      const netdev = netdevs[0];
      const mtu = netdev === undefined ? null : readNumber(host.view, `/sys/class/net/${netdev}/mtu`);
      const path = port.mtuBytes;
      const isSmall =
        path === null ? !isInfiniBand && mtu !== null && mtu < netdevMtuBytes : path < wantedMtuBytes;
      if (!isSmall) return [];
      const ofNetdev = mtu === null ? '' : `, ${netdev} has MTU ${mtu}`;
      const found = `${name} port ${port.port}: path MTU ${path ?? 'unknown'}${ofNetdev}`;
      const remedy = isInfiniBand
        ? "give the partition mtu=5 in OpenSM's partitions.conf, and look for a switch port with a smaller MTU"
        : `ip link set ${netdev ?? 'DEV'} mtu 4200 (9000 where the network has it), the same on the peer and on the switches`;
      return [{ severity: 'warning', found, remedy }];
    }),
};

export const gidTable: Check = {
  id: 'gid-table',
  looksAt: 'the best GID of every active RoCE port',
  why: 'Connections are made through a GID: RoCE v1 has no IP header (no routing, no DSCP, so no classes), a link-local address does not leave its link.',
  remedy:
    'Give the network device a routable address (`ip address add`); containers: `--network host`, or the NIC’s own namespace',
  run: ({ devices }) =>
    devices.flatMap(({ name, ports, netdevs }) =>
      ports
        .filter((port) => isActive(port) && port.linkLayer !== 'infiniband')
        .flatMap((port) => gidProblems(`${name} port ${port.port}`, port, netdevs[0] ?? 'DEV')),
    ),
};

function gidProblems(place: string, { gids }: HostPort, netdev: string): Problem[] {
  const [best] = gids;
  const address = `ip address add ADDRESS/PREFIX dev ${netdev}`;
  if (best === undefined || best.rank === null) {
    const remedy = `${address}; in a container: --network host, so that the GIDs of the host's network can be seen`;
    return [{ severity: 'error', found: `${place}: no usable entry in the GID table`, remedy }];
  }
  if (best.type === 'roce-v1') {
    const remedy = `switch RoCE v2 on (cma_roce_mode -d DEVICE -p PORT -m 2) and give ${netdev} an address`;
    return [{ severity: 'error', found: `${place}: the best GID is ${best.gid} (${best.reason})`, remedy }];
  }
  if (!/link-local/.test(best.reason)) return [];
  return [
    { severity: 'warning', found: `${place}: the best GID is ${best.gid} (${best.reason})`, remedy: address },
  ];
}

export const addressFlux: Check = {
  id: 'address-flux',
  looksAt: '/proc/net/route, arp_ignore and rp_filter of RoCE network devices in one subnet',
  why: 'Two NICs in one subnet answer each other’s ARP requests: packets for one arrive at the other, and connections stall or share a link.',
  remedy:
    'A subnet for each NIC, or `sysctl net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 net.ipv4.conf.all.rp_filter=2` and policy routing',
  run: ({ view, devices }) => {
    const mine = new Set(devices.flatMap(({ netdevs }) => netdevs));
    const bySubnet = new Map<string, string[]>();
    for (const line of (view.read('/proc/net/route').text ?? '').split('\n').slice(1)) {
      const [netdev = '', destination = '', , , , , , mask = ''] = line.split('\t');
      if (!mine.has(netdev) || /^0+$/.test(mask)) continue;
      const subnet = `${destination}/${mask}`;
      bySubnet.set(subnet, [...new Set([...(bySubnet.get(subnet) ?? []), netdev])]);
    }
    const ignore = (netdev: string): number =>
      Math.max(
        ...['all', netdev].map((name) => readNumber(view, `/proc/sys/net/ipv4/conf/${name}/arp_ignore`) ?? 0),
      );
    return [...bySubnet.values()]
      .filter((names) => names.length > 1 && names.some((name) => ignore(name) === 0))
      .map((names) => ({
        severity: 'warning',
        found: `${names.join(' and ')} are in one subnet and answer each other's ARP requests (arp_ignore 0)`,
        remedy:
          'sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 net.ipv4.conf.all.rp_filter=2, or a subnet for each',
      }));
  },
};
