/** The service's messages as they matter here. */
import type { DualPathError } from '../errors/index.js';
import type { GroupHello, LeaseGrant, LeaseOutcome, LeaseSubmission } from '../leases/index.js';
import type { Stage } from '../scheduler/index.js';

export interface Up {
  readonly renewal: number;
  readonly hello?: GroupHello;
  readonly fetch?: boolean;
  readonly stage?: { readonly admission: number; readonly stage: Stage; readonly tokens: number };
  readonly tokens?: { readonly admission: number; readonly first: number; readonly tokens: Uint32Array };
  readonly failure?: { readonly engine: string; readonly admission: number; readonly error: DualPathError };
  readonly lostEngine?: string;
}

export interface Down {
  readonly ack: number;
  readonly renewed: number;
  readonly epoch: number;
  readonly welcome?: boolean;
  readonly assign?: LeaseGrant;
  readonly revoke?: number;
  readonly resend?: { readonly admission: number; readonly first: number };
}

export interface ClientUp {
  readonly hello?: boolean;
  readonly submit?: LeaseSubmission;
  readonly cancel?: string;
  readonly acknowledge?: string;
}

export interface ClientDown {
  readonly welcome?: boolean;
  readonly refused?: { readonly key: string; readonly error: DualPathError };
  readonly tokens?: { readonly key: string; readonly first: number; readonly tokens: Uint32Array };
  readonly ended?: { readonly key: string; readonly outcome: LeaseOutcome };
}

/** What a request generates: everybody can tell whether a token is its and in its place. */
export function tokenOf(request: string, index: number): number {
  let hash = index + 1;
  for (let i = 0; i < request.length; i++) hash = (Math.imul(hash, 31) + request.charCodeAt(i)) >>> 0;
  return hash;
}
