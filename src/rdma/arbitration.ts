/**
 * What the arbiter of an InfiniBand port gives each traffic class: its tables, and shares computed from them. The arbiter
 * itself, as emulated links have it, is native/core/vl_arbiter.h; InfiniBand Architecture Specification, volume 1, 7.6.9.
 */
import { DualPathError } from '../errors/index.js';
import {
  defaultTrafficClasses,
  trafficClassNames,
  type TrafficClasses,
  type TrafficClassName,
} from './classes.js';

/** Weights count 64 bytes; an entry of weight 0 is passed over. */
export interface LaneWeight {
  readonly lane: number;
  readonly weight: number;
}

export interface Arbitration {
  readonly high: readonly LaneWeight[];
  readonly low: readonly LaneWeight[];
  /**
   * What the high-priority table sends before the low-priority one gets an opportunity of one packet, in units of 4096 bytes;
   * 0: a single packet, 255: no bound.
   */
  readonly highLimit: number;
}

/** The paper's (qos_vlarb_high, qos_vlarb_low, qos_high_limit of OpenSM): VL 2 carries KV-Cache. */
export const paperArbitration: Arbitration = {
  high: weights({ 0: 192, 1: 192, 2: 0, 3: 192 }),
  low: weights({ 0: 192, 1: 192, 2: 64, 3: 192 }),
  highLimit: 240,
};

/** As emulated links take it. */
export interface PortArbitration extends Arbitration {
  readonly lanes: Readonly<Record<TrafficClassName, number>>;
}

export type ClassShares = Readonly<Record<TrafficClassName, number>>;

const packetBytes = 4096;
const weightBytes = 64;
const limitBytes = 4096;
const noLimit = 255;
const maxEntries = 64;

function weights(byLane: Readonly<Record<number, number>>): LaneWeight[] {
  return Object.entries(byLane).map(([lane, weight]) => ({ lane: Number(lane), weight }));
}

/** Checked. @throws INVALID_ARGUMENT for values no port has, and a class whose lane has no weight anywhere */
export function portArbitration(
  classes: TrafficClasses = defaultTrafficClasses,
  arbitration: Arbitration = paperArbitration,
): PortArbitration {
  const { high, low, highLimit } = arbitration;
  inRange('highLimit', highLimit, 255);
  for (const [name, table] of Object.entries({ high, low })) {
    if (table.length > maxEntries)
      throw invalid(`table ${name} has ${table.length} entries; at most ${maxEntries} are possible`);
    for (const { lane, weight } of table) {
      inRange(`virtual lane in table ${name}`, lane, 14);
      inRange(`weight of lane ${lane} in table ${name}`, weight, 255);
    }
  }
  const lanes = lanesOf(classes);
  for (const name of trafficClassNames) {
    if ([...high, ...low].some(({ lane, weight }) => lane === lanes[name] && weight > 0)) continue;
    throw invalid(
      `traffic class ${name} has virtual lane ${lanes[name]}, to which neither table gives any weight: it would never ` +
        'send; give the lane a weight or the class another lane',
    );
  }
  return { high, low, highLimit, lanes };
}

/**
 * The part of a port's bandwidth that each lane has while all of `busy` always have packets of 4 KiB, 0 to 1. A lane of
 * neither table has nothing; alone, a lane has everything.
 */
export function laneShares(arbitration: Arbitration, busy: readonly number[]): ReadonlyMap<number, number> {
  const { high, low, highLimit } = arbitration;
  const inHigh = packetsByLane(high, busy);
  const inLow = packetsByLane(low, busy);
  const highPart = partOfHigh(inHigh.size > 0, inLow.size > 0, highLimit);
  const shares = new Map<number, number>(busy.map((lane) => [lane, 0]));
  const add = (packets: ReadonlyMap<number, number>, part: number): void => {
    const total = [...packets.values()].reduce((sum, count) => sum + count, 0);
    for (const [lane, count] of packets) shares.set(lane, shares.get(lane)! + (part * count) / total);
  };
  add(inHigh, highPart);
  add(inLow, 1 - highPart);
  return shares;
}

/** Each class's share while those of `busy` always have something to send; classes of one lane share its part evenly. */
export function classShares(
  busy: readonly TrafficClassName[],
  arbitration: Arbitration = paperArbitration,
  classes: TrafficClasses = defaultTrafficClasses,
): ClassShares {
  return sharesOf(busy, arbitration, classes, []);
}

/** The least that a class is left with: every class and every other lane of the tables is busy. */
export function guaranteedShares(
  arbitration: Arbitration = paperArbitration,
  classes: TrafficClasses = defaultTrafficClasses,
): ClassShares {
  const others = [...arbitration.high, ...arbitration.low].map(({ lane }) => lane);
  return sharesOf(trafficClassNames, arbitration, classes, others);
}

function sharesOf(
  busy: readonly TrafficClassName[],
  arbitration: Arbitration,
  classes: TrafficClasses,
  otherLanes: readonly number[],
): ClassShares {
  const lanes = lanesOf(classes);
  const shares = laneShares(arbitration, [...new Set([...otherLanes, ...busy.map((name) => lanes[name])])]);
  const share = (name: TrafficClassName): number =>
    busy.includes(name)
      ? (shares.get(lanes[name]) ?? 0) / busy.filter((other) => lanes[other] === lanes[name]).length
      : 0;
  return { inference: share('inference'), kv: share('kv'), control: share('control') };
}

function lanesOf(classes: TrafficClasses): PortArbitration['lanes'] {
  return {
    inference: classes.inference.virtualLane,
    kv: classes.kv.virtualLane,
    control: classes.control.virtualLane,
  };
}

/** Packets of each busy lane in a round of the table: an entry's last packet may go beyond its weight. */
function packetsByLane(table: readonly LaneWeight[], busy: readonly number[]): Map<number, number> {
  const packets = new Map<number, number>();
  for (const { lane, weight } of table) {
    if (weight === 0 || !busy.includes(lane)) continue;
    packets.set(lane, (packets.get(lane) ?? 0) + Math.ceil((weight * weightBytes) / packetBytes));
  }
  return packets;
}

function partOfHigh(high: boolean, low: boolean, highLimit: number): number {
  if (!high || !low) return high ? 1 : 0;
  if (highLimit === noLimit) return 1;
  const packets = Math.max(1, Math.ceil((highLimit * limitBytes) / packetBytes));
  return packets / (packets + 1);
}

function inRange(what: string, value: number, most: number): void {
  if (Number.isInteger(value) && value >= 0 && value <= most) return;
  throw invalid(`${what}: ${value}; whole numbers from 0 to ${most} are allowed`);
}

function invalid(message: string): DualPathError {
  return new DualPathError('INVALID_ARGUMENT', `arbitration: ${message}`);
}
