/** What two ends of a queue pair tell each other, and what they agree on. */
import { DualPathError } from '../errors/index.js';
import { addressFields, type TrafficClassName, type TrafficClasses } from './classes.js';
import type { LinkLayer } from './gid.js';

export const rdmaProtocolVersion = 1;

/** One side's word, sent over the control connection. */
export interface PathHello {
  readonly version: number;
  /** Identity of model and layout: engines of different models must not write each other's memory. */
  readonly identity: string;
  readonly trafficClass: TrafficClassName;
  readonly linkLayer: LinkLayer;
  readonly mtuBytes: number;
  readonly lid: number;
  readonly gid: string;
  readonly qpNum: number;
  readonly psn: number;
  /** Receives posted: the other side's first credits. */
  readonly receives: number;
  readonly creditAddress: bigint;
  readonly creditKey: number;
}

/** As native/verbs/queue_pair.h takes them. */
export interface PathParameters {
  readonly peer: PathHello;
  readonly mtuBytes: number;
  readonly serviceLevel: number;
  readonly trafficClass: number;
  /** An ACK is late after 4.096 us * 2^timeout. */
  readonly timeout: number;
  /** Soft-RoCE takes 7, the most there is, for ever. */
  readonly retryCount: number;
  /** Finite: 7 would mean for ever. */
  readonly rnrRetry: number;
}

const mtus: readonly number[] = [256, 512, 1024, 2048, 4096];

/**
 * What this side connects its queue pair with. Both sides come to the same MTU: the smaller of the two.
 * @throws INVALID_ARGUMENT when the two cannot work together; the message says in what they differ
 */
export function agreePath(local: PathHello, peer: PathHello, classes: TrafficClasses): PathParameters {
  differ('protocol version', local.version, peer.version, 'run the same version of dualpath on both sides');
  differ(
    'model and layout',
    local.identity,
    peer.identity,
    'give both engines the same model and block size',
  );
  differ('link layer', local.linkLayer, peer.linkLayer, 'use ports of one fabric on both sides');
  differ('traffic class', local.trafficClass, peer.trafficClass, 'this is a fault, please report it');
  for (const [side, { mtuBytes }] of Object.entries({ 'this side': local, 'the peer': peer })) {
    if (mtus.includes(mtuBytes)) continue;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `path MTU ${mtuBytes} of ${side}: ${mtus.join(', ')} are allowed`,
      { mtu_bytes: mtuBytes },
    );
  }
  return {
    peer,
    mtuBytes: Math.min(local.mtuBytes, peer.mtuBytes),
    ...addressFields(classes[local.trafficClass], local.linkLayer),
    timeout: 17,
    retryCount: 6,
    rnrRetry: 6,
  };
}

function differ(what: string, here: string | number, there: string | number, remedy: string): void {
  if (here === there) return;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `the peer's ${what} is '${there}', this side's '${here}'; ${remedy}`,
  );
}
