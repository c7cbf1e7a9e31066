/** A description as RoCE has it: DSCP to traffic class, PFC, ETS weights, ECN, in the forms that operators use. */
import { qosClassNames, type QosClass, type QosDescription } from './description.js';

const trafficClassCount = 8;

/** What a NIC or switch port is to be set to; index: 802.1p priority, which is the traffic class. */
export interface EthernetSettings {
  readonly priorityOfDscp: readonly (readonly [dscp: number, priority: number])[];
  readonly lossless: readonly boolean[];
  /** Percent, together 100. */
  readonly bandwidth: readonly number[];
}

export function ethernetSettings({ classes }: QosDescription): EthernetSettings {
  const all = qosClassNames.map((name) => classes[name]);
  const lossless = new Array<boolean>(trafficClassCount).fill(false);
  const share = new Array<number>(trafficClassCount).fill(0);
  for (const one of all) {
    lossless[one.trafficClass] = one.lossless;
    share[one.trafficClass]! += one.share;
  }
  const priorityOfDscp = all
    .map(({ dscp, trafficClass }: QosClass) => [dscp, trafficClass] as const)
    .sort(([a], [b]) => a - b);
  return { priorityOfDscp, lossless, bandwidth: percentages(share) };
}

/** Whole percent, none of what is above 0 left without, together 100: the greatest remainders are rounded up. */
export function percentages(shares: readonly number[]): number[] {
  const least = shares.map((share) => (share > 0 ? Math.max(1, Math.floor(share * 100 + 1e-9)) : 0));
  const byRemainder = shares
    .map((share, i) => ({ i, remainder: share * 100 - least[i]! }))
    .filter(({ i }) => least[i]! > 0)
    .sort((a, b) => b.remainder - a.remainder || a.i - b.i);
  let missing = 100 - least.reduce((sum, value) => sum + value, 0);
  for (let i = 0; missing > 0; i++, missing--) least[byRemainder[i % byRemainder.length]!.i]!++;
  // Where small shares were rounded up, the greatest one gives.
  while (missing < 0) {
    least[least.indexOf(Math.max(...least))]!--;
    missing++;
  }
  return least;
}

const perClass = (of: (tc: number) => string): string =>
  Array.from({ length: trafficClassCount }, (_, tc) => of(tc)).join(',');
const perClassWords = (of: (tc: number) => string): string[] =>
  Array.from({ length: trafficClassCount }, (_, tc) => `${tc}:${of(tc)}`);

/** NVIDIA's tool, from MLNX_OFED or mlnx-tools. */
export function mlnxQosCommands(settings: EthernetSettings, netdev: string): string[][] {
  const { priorityOfDscp, lossless, bandwidth } = settings;
  const base = ['mlnx_qos', '-i', netdev];
  return [
    [...base, '--trust', 'dscp'],
    ...priorityOfDscp.map(([dscp, priority]) => [...base, '--dscp2prio', `set,${dscp},${priority}`]),
    [...base, '--pfc', perClass((tc) => (lossless[tc] ? '1' : '0'))],
    [
      ...base,
      ...['--prio_tc', perClass(String)],
      // A class without weight among weighted ones is best effort; 'ets' for all, as 'strict' would go before them.
      ...['--tsa', perClass(() => 'ets')],
      ...['--tcbw', perClass((tc) => String(bandwidth[tc]))],
    ],
  ];
}

/** iproute2's tool, for every driver with DCB. */
export function dcbCommands(settings: EthernetSettings, netdev: string): string[][] {
  const { priorityOfDscp, lossless, bandwidth } = settings;
  return [
    [
      ...['dcb', 'app', 'replace', 'dev', netdev, 'dscp-prio'],
      ...priorityOfDscp.map(([dscp, prio]) => `${dscp}:${prio}`),
    ],
    ['dcb', 'pfc', 'set', 'dev', netdev, 'prio-pfc', ...perClassWords((tc) => (lossless[tc] ? 'on' : 'off'))],
    [
      ...['dcb', 'ets', 'set', 'dev', netdev],
      ...['tc-tsa', ...perClassWords(() => 'ets')],
      ...['tc-bw', ...perClassWords((tc) => String(bandwidth[tc]))],
      ...['prio-tc', ...perClassWords(String)],
    ],
  ];
}

/** ECN of mlx5's RoCE (DCQCN): who receives marks answers with CNPs, who gets CNPs slows down. */
export function ecnFiles({ lossless }: EthernetSettings, netdev: string): { path: string; value: string }[] {
  const priorities = lossless.flatMap((isLossless, priority) => (isLossless ? [priority] : []));
  return priorities.flatMap((priority) =>
    ['roce_np', 'roce_rp'].map((role) => ({
      path: `/sys/class/net/${netdev}/ecn/${role}/enable/${priority}`,
      value: '1',
    })),
  );
}

/** Where a switch marks: between these two lengths of a queue, with up to this probability in percent. */
const ecnMarking = { kminBytes: 1_000_000, kmaxBytes: 2_000_000, pmaxPercent: 5 };
const mapName = 'DUALPATH';

/** Tables of SONiC's config_db.json for the ports given. */
export function sonicTables(settings: EthernetSettings, ports: readonly string[]): object {
  const { priorityOfDscp, lossless, bandwidth } = settings;
  const used = bandwidth.flatMap((percent, tc) => (percent > 0 ? [tc] : []));
  const losslessClasses = used.filter((tc) => lossless[tc]);
  const each = <T>(keys: readonly number[], of: (tc: number) => T): Record<string, T> =>
    Object.fromEntries(keys.map((tc) => [String(tc), of(tc)]));
  const otherClass = String(priorityOfDscp.find(([dscp]) => dscp === 0)?.[1] ?? 0);
  const dscps = Object.fromEntries(Array.from({ length: 64 }, (_, dscp) => [String(dscp), otherClass]));
  for (const [dscp, tc] of priorityOfDscp) dscps[String(dscp)] = String(tc);
  const { kminBytes, kmaxBytes, pmaxPercent } = ecnMarking;
  const threshold = (colour: string): Record<string, string> => ({
    [`wred_${colour}_enable`]: 'true',
    [`${colour}_min_threshold`]: String(kminBytes),
    [`${colour}_max_threshold`]: String(kmaxBytes),
    [`${colour}_drop_probability`]: String(pmaxPercent),
  });
  return {
    DSCP_TO_TC_MAP: { [mapName]: dscps },
    TC_TO_QUEUE_MAP: { [mapName]: each(used, String) },
    TC_TO_PRIORITY_GROUP_MAP: { [mapName]: each(used, String) },
    MAP_PFC_PRIORITY_TO_QUEUE: { [mapName]: each(losslessClasses, String) },
    SCHEDULER: Object.fromEntries(
      used.map((tc) => [`${mapName}.${tc}`, { type: 'DWRR', weight: String(bandwidth[tc]) }]),
    ),
    WRED_PROFILE: {
      [mapName]: { ecn: 'ecn_all', ...threshold('green'), ...threshold('yellow'), ...threshold('red') },
    },
    PORT_QOS_MAP: Object.fromEntries(
      ports.map((port) => [
        port,
        {
          dscp_to_tc_map: mapName,
          tc_to_queue_map: mapName,
          tc_to_pg_map: mapName,
          pfc_to_queue_map: mapName,
          pfc_enable: losslessClasses.join(','),
        },
      ]),
    ),
    QUEUE: Object.fromEntries(
      ports.flatMap((port) =>
        used.map((tc) => [
          `${port}|${tc}`,
          { scheduler: `${mapName}.${tc}`, ...(lossless[tc] ? { wred_profile: mapName } : {}) },
        ]),
      ),
    ),
  };
}
