/**
 * Traffic classes by name, in one place. What a class means on the wire is fixed when a queue pair is connected: the
 * service level on InfiniBand, the DSCP on RoCE. So there is one queue pair for each (peer, class).
 */
import { DualPathError } from '../errors/index.js';
import { closest } from '../layout/index.js';
import type { LinkLayer } from './gid.js';

export const trafficClassNames = ['inference', 'kv', 'control'] as const;
export type TrafficClassName = (typeof trafficClassNames)[number];

export interface TrafficClass {
  /** InfiniBand SL, 0 to 15; the subnet manager maps it to a virtual lane. */
  readonly serviceLevel: number;
  /** The virtual lane that the SL is mapped to, 0 to 14; a queue of a port's arbiter (arbitration.ts). */
  readonly virtualLane: number;
  /** RoCE: differentiated services code point, 0 to 63 (RFC 2474). */
  readonly dscp: number;
}

export type TrafficClasses = Readonly<Record<TrafficClassName, TrafficClass>>;

/** Inference above KV-Cache traffic; control above both, and small. */
export const defaultTrafficClasses: TrafficClasses = {
  inference: { serviceLevel: 1, virtualLane: 1, dscp: 26 },
  kv: { serviceLevel: 2, virtualLane: 2, dscp: 10 },
  control: { serviceLevel: 3, virtualLane: 3, dscp: 46 },
};

/** The defaults with what is given in their place. @throws INVALID_ARGUMENT */
export function trafficClasses(given: Readonly<Record<string, Partial<TrafficClass>>> = {}): TrafficClasses {
  for (const name of Object.keys(given)) {
    if (isClassName(name)) continue;
    const near = closest(name, trafficClassNames);
    throw invalid(
      `there is no traffic class '${name}'${near === undefined ? '' : ` (did you mean ${near}?)`}; ` +
        `they are ${trafficClassNames.join(', ')}`,
    );
  }
  const of = (name: TrafficClassName): TrafficClass => {
    const wanted = { ...defaultTrafficClasses[name], ...given[name] };
    inRange(name, 'service level (SL)', wanted.serviceLevel, 15);
    inRange(name, 'virtual lane (VL)', wanted.virtualLane, 14);
    inRange(name, 'DSCP', wanted.dscp, 63);
    return wanted;
  };
  const classes = { inference: of('inference'), kv: of('kv'), control: of('control') };
  const { inference, kv } = classes;
  if (inference.dscp === kv.dscp || inference.serviceLevel === kv.serviceLevel) {
    throw invalid(
      `classes inference (SL ${inference.serviceLevel}, DSCP ${inference.dscp}) and kv ` +
        `(SL ${kv.serviceLevel}, DSCP ${kv.dscp}) must differ in both, or the fabric cannot tell them apart`,
    );
  }
  return classes;
}

/** What a queue pair's address vector carries: the SL on InfiniBand, the IP traffic class (DSCP << 2) on RoCE. */
export function addressFields(
  traffic: TrafficClass,
  linkLayer: LinkLayer,
): { serviceLevel: number; trafficClass: number } {
  return linkLayer === 'infiniband'
    ? { serviceLevel: traffic.serviceLevel, trafficClass: 0 }
    : { serviceLevel: 0, trafficClass: traffic.dscp << 2 };
}

function isClassName(name: string): name is TrafficClassName {
  return (trafficClassNames as readonly string[]).includes(name);
}

function inRange(name: string, what: string, value: number, most: number): void {
  if (Number.isInteger(value) && value >= 0 && value <= most) return;
  throw invalid(`traffic class ${name}: ${what} ${value}; whole numbers from 0 to ${most} are allowed`);
}

function invalid(message: string): DualPathError {
  return new DualPathError('INVALID_ARGUMENT', message);
}
