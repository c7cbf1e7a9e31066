/** A description as InfiniBand has it: arbiter tables, SL-to-VL map, OpenSM's options; and back. */
import { DualPathError } from '../errors/index.js';
import { laneShares, type Arbitration, type LaneWeight } from '../rdma/index.js';
import { qosClassNames, type QosClassName, type QosDescription } from './description.js';

/** An entry's weight counts 64 bytes and has 8 bits: it holds at most three whole packets of 4 KiB. */
const weightPerPacket = 64;
const mostPackets = 3;
const serviceLevels = 16;
/** OpenSM's groups of options: all ports, channel adapters, switches' own port 0, their other ports, routers. */
export const openSmGroups = ['', 'ca_', 'sw0_', 'swe_', 'rtr_'] as const;

export type SharesByClass = Readonly<Record<QosClassName, number>>;

/** @throws INVALID_ARGUMENT where a limit from the shares is out of the 8 bits that there are */
export function arbitrationOf(description: QosDescription): Arbitration {
  const lanes = new Map<number, { share: number; isHigh: boolean }>();
  for (const name of qosClassNames) {
    const { virtualLane, share, priority } = description.classes[name];
    const before = lanes.get(virtualLane)?.share ?? 0;
    lanes.set(virtualLane, { share: before + share, isHigh: priority === 'high' });
  }
  const greatest = Math.max(...[...lanes.values()].map(({ share }) => share));
  const sorted = [...lanes].sort(([a], [b]) => a - b);
  const weightOf = (share: number): number =>
    weightPerPacket * Math.max(1, Math.round((mostPackets * share) / greatest));
  const high = sorted.map(([lane, { share, isHigh }]) => ({ lane, weight: isHigh ? weightOf(share) : 0 }));
  const low = sorted
    .filter(([, { isHigh }]) => description.lowTable === 'every_lane' || !isHigh)
    .map(([lane, { share }]) => ({ lane, weight: weightOf(share) }));
  return { high, low, highLimit: limitOf(description, low) };
}

/** So many packets of high priority to one of low priority that each low class gets its share. */
function limitOf({ classes, highLimit }: QosDescription, low: readonly LaneWeight[]): number {
  if (highLimit !== 'from_shares') return highLimit;
  const total = low.reduce((sum, { weight }) => sum + weight, 0);
  const limits = qosClassNames
    .map((name) => classes[name])
    .filter(({ priority }) => priority === 'low')
    .map(({ virtualLane, share }) => {
      const { weight } = low.find(({ lane }) => lane === virtualLane)!;
      return Math.floor(weight / total / share + 1e-9) - 1;
    });
  const limit = Math.min(...limits);
  if (limit >= 1) return Math.min(limit, 254);
  throw new DualPathError(
    'INVALID_ARGUMENT',
    "high_limit 'from_shares': low priority has every second packet at most; give its classes smaller shares, " +
      "or low_table 'low_lanes' that they do not share it",
  );
}

/** Each class's part of a port while the lanes of `busy` are, 0 to 1; of classes of one lane evenly. */
export function sharesOf(
  arbitration: Arbitration,
  { classes }: QosDescription,
  busy: readonly QosClassName[] = qosClassNames,
): SharesByClass {
  const lanes = new Set(busy.map((name) => classes[name].virtualLane));
  const byLane = laneShares(arbitration, [...lanes]);
  const share = (name: QosClassName): number => {
    if (!busy.includes(name)) return 0;
    const lane = classes[name].virtualLane;
    const together = busy.filter((other) => classes[other].virtualLane === lane).length;
    return (byLane.get(lane) ?? 0) / together;
  };
  return {
    other: share('other'),
    inference: share('inference'),
    kv: share('kv'),
    control: share('control'),
  };
}

/** The virtual lane of each service level; levels of no class go with `other`. */
export function slToVlOf({ classes }: QosDescription): number[] {
  const map = new Array<number>(serviceLevels).fill(classes.other.virtualLane);
  for (const name of qosClassNames) map[classes[name].serviceLevel] = classes[name].virtualLane;
  return map;
}

/** As many lanes as a port must have: ports have 1, 2, 4, 8 or 15. */
export function lanesOf({ classes }: QosDescription): number {
  const least = Math.max(...qosClassNames.map((name) => classes[name].virtualLane)) + 1;
  return [1, 2, 4, 8, 15].find((count) => count >= least)!;
}

const tableText = (table: readonly LaneWeight[]): string =>
  table.map(({ lane, weight }) => `${lane}:${weight}`).join(',');

/** Options of opensm.conf. The same for each group, or adapters and switches would disagree. */
export function openSmOptions(description: QosDescription): string[] {
  const { high, low, highLimit } = arbitrationOf(description);
  const values = {
    max_vls: lanesOf(description),
    high_limit: highLimit,
    vlarb_high: tableText(high),
    vlarb_low: tableText(low),
    sl2vl: slToVlOf(description).join(','),
  };
  const group = (prefix: string): string[] =>
    Object.entries(values).map(([name, value]) => `qos_${prefix}${name} ${value}`);
  return ['qos TRUE', ...openSmGroups.flatMap(group)];
}

export interface OpenSmQos {
  readonly enabled: boolean;
  /** By group; what a group does not say it has from the first, '' . */
  readonly groups: ReadonlyMap<string, OpenSmGroup>;
}

export interface OpenSmGroup {
  readonly arbitration: Arbitration;
  readonly slToVl: readonly number[];
  readonly lanes: number;
}

/** What OpenSM takes where nothing is said (opensm(8), "QoS configuration"). */
const openSmDefaults: Readonly<Record<string, string>> = {
  max_vls: '15',
  high_limit: '0',
  vlarb_high: '0:4,1:0,2:0,3:0,4:0,5:0,6:0,7:0,8:0,9:0,10:0,11:0,12:0,13:0,14:0',
  vlarb_low: '0:0,1:4,2:4,3:4,4:4,5:4,6:4,7:4,8:4,9:4,10:4,11:4,12:4,13:4,14:4',
  sl2vl: '0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,7',
};

/** opensm.conf back. @throws INVALID_ARGUMENT naming the option that cannot be read */
export function parseOpenSm(text: string): OpenSmQos {
  const options = new Map<string, string>();
  for (const line of text.split('\n')) {
    const [name = '', ...rest] = line.replace(/#.*/, '').trim().split(/\s+/);
    const value = rest.join('');
    // "(null)" is how OpenSM writes that an option has not been set.
    if (name !== '' && value !== '' && value !== '(null)') options.set(name, value);
  }
  const groups = openSmGroups.map((prefix): [string, OpenSmGroup] => {
    const text = (name: string): string =>
      options.get(`qos_${prefix}${name}`) ?? options.get(`qos_${name}`) ?? openSmDefaults[name]!;
    const where = (name: string): string => `qos_${prefix}${name}`;
    const number = (name: string): number => numbersOf(text(name), where(name))[0]!;
    const arbitration = {
      high: tableOf(text('vlarb_high'), where('vlarb_high')),
      low: tableOf(text('vlarb_low'), where('vlarb_low')),
      highLimit: number('high_limit'),
    };
    const slToVl = numbersOf(text('sl2vl'), where('sl2vl'));
    return [prefix, { arbitration, slToVl, lanes: number('max_vls') }];
  });
  return { enabled: /^true$/i.test(options.get('qos') ?? ''), groups: new Map(groups) };
}

function numbersOf(text: string, option: string): number[] {
  return text.split(',').map((part) => {
    if (/^\d+$/.test(part)) return Number(part);
    throw new DualPathError('INVALID_ARGUMENT', `${option}: '${part}' is no number`);
  });
}

function tableOf(text: string, option: string): LaneWeight[] {
  return text.split(',').map((part) => {
    const [, lane, weight] = /^(\d+):(\d+)$/.exec(part) ?? [];
    if (lane !== undefined && weight !== undefined) return { lane: Number(lane), weight: Number(weight) };
    throw new DualPathError('INVALID_ARGUMENT', `${option}: '${part}' is no LANE:WEIGHT`);
  });
}
