import { DualPathError } from '../errors/index.js';
import type { DecisionLog } from './decision-log.js';
import { requireAtMost, requireFinite, requireInteger, requireName } from './check.js';
import {
  readPolicies,
  waitingOrders,
  type EngineCapacity,
  type ReadPolicy,
  type WaitingOrder,
} from './types.js';
import type { TenantShare } from './waiting-queue.js';

export interface AdmissionOptions {
  /** None, if they are to join later. */
  readonly engines: readonly EngineCapacity[];
  readonly policy: ReadPolicy;
  /** Tokens of a block. */
  readonly blockTokens: number;
  /** Bytes of a Full Block. */
  readonly blockBytes: number;
  /** DE buffer blocks that a request keeps until it ends, for persisting what it generates. */
  readonly decodeSpareBlocks: number;
  /** Most requests that may wait, for a PE or for a DE. */
  readonly maxWaiting: number;
  /** Breaks ties between engines. */
  readonly seed: number;
  /** alpha: seconds of queued reads up to which a node's link counts as free; default 3, as in the paper. */
  readonly alphaS?: number;
  /**
   * beta: unfinished tokens beyond which a PE gets nothing; the paper's is what a GPU processes in 5 s
   * (`betaTokens`). Default: no limit.
   */
  readonly betaTokens?: number;
  /** What a hit token counts in tok_e of a PE: 1, the default, is the paper's; 0 counts what is computed only. */
  readonly hitTokenWeight?: number;
  /** Default 'fifo', as in the paper. */
  readonly order?: WaitingOrder;
  /** For 'slack': how many seconds a prompt token counts, hits as `hitTokenWeight` says. */
  readonly slackSPerToken?: number;
  /** Seconds that each step of priority puts a request ahead of its arrival; default 0. */
  readonly priorityHeadStartS?: number;
  /** Tenants and their weights; default: all requests are of one. */
  readonly tenants?: readonly TenantShare[];
  /** Number of the first assignment, less one: those of successive schedulers must not meet; default 0. */
  readonly admissionBase?: number;
  /** Follow measured link rates (`EngineLoad.nodeRead`) instead of the nominal ones; default false. */
  readonly adaptLinkRates?: boolean;
  /** Keeps why each request went where it went; default: nobody asks, and it costs nothing. */
  readonly decisions?: DecisionLog | undefined;
}

export const defaults = {
  alphaS: 3,
  betaTokens: Number.POSITIVE_INFINITY,
  hitTokenWeight: 1,
  order: 'fifo',
  slackSPerToken: 0,
  priorityHeadStartS: 0,
  tenants: [] as readonly TenantShare[],
  admissionBase: 0,
  adaptLinkRates: false,
  decisions: undefined,
} as const satisfies Partial<AdmissionOptions>;

const OPTION_NAMES: readonly (keyof AdmissionOptions)[] = [
  'engines',
  'policy',
  'blockTokens',
  'blockBytes',
  'decodeSpareBlocks',
  'maxWaiting',
  'seed',
  ...(Object.keys(defaults) as (keyof typeof defaults)[]),
];

/** Bounds what the order among tenants costs. */
const maxTenants = 65_536;

/**
 * The options with their defaults.
 *
 * @throws INVALID_ARGUMENT for a misspelled option or an impossible value; engines are the ledger's to check
 */
export function checkOptions(options: AdmissionOptions): Required<AdmissionOptions> {
  for (const name of Object.keys(options)) {
    if ((OPTION_NAMES as readonly string[]).includes(name)) continue;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `option ${name} does not exist: use ${OPTION_NAMES.join(', ')}`,
      { option: name },
    );
  }
  const all = { ...defaults, ...options };
  oneOf('policy', all.policy, Object.keys(readPolicies));
  oneOf('order', all.order, Object.keys(waitingOrders));
  requireInteger('blockTokens', all.blockTokens, 1, 'give the tokens of a block, such as 64');
  requireFinite('blockBytes', all.blockBytes, 'positive', 'give the bytes of a Full Block');
  requireInteger('decodeSpareBlocks', all.decodeSpareBlocks, 0, 'give blocks for persisting, such as 2');
  requireInteger('maxWaiting', all.maxWaiting, 1, 'give the most requests that may wait');
  requireInteger('seed', all.seed, 0, 'give any such integer');
  requireFinite('alphaS', all.alphaS, 'not negative', 'give seconds of reads, such as 3');
  if (all.betaTokens !== Number.POSITIVE_INFINITY) {
    requireFinite('betaTokens', all.betaTokens, 'not negative', 'give what a GPU processes in 5 s');
  }
  requireFinite('hitTokenWeight', all.hitTokenWeight, 'not negative', 'give 0 to 1');
  requireAtMost('hitTokenWeight', all.hitTokenWeight, 1, 'give 0 to 1');
  requireFinite('slackSPerToken', all.slackSPerToken, 'not negative', 'give seconds a token');
  requireFinite('priorityHeadStartS', all.priorityHeadStartS, 'not negative', 'give seconds a step');
  requireInteger('admissionBase', all.admissionBase, 0, 'give a number beyond those given out before');
  checkTenants(all.tenants);
  return all;
}

function oneOf(name: string, value: string, names: readonly string[]): void {
  if (names.includes(value)) return;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `${name} ${String(value)} does not exist: use ${names.join(', ')}`,
    { [name]: String(value) },
  );
}

function checkTenants(tenants: readonly TenantShare[]): void {
  requireAtMost('tenants', tenants.length, maxTenants, 'let small tenants share');
  const names = new Set<string>();
  for (const { tenant, weight } of tenants) {
    requireName('tenant', tenant);
    requireFinite(`weight of tenant ${tenant}`, weight, 'positive', 'give its share relative to the others');
    if (names.has(tenant)) {
      throw new DualPathError('INVALID_ARGUMENT', `tenant ${tenant} has two shares: give it one`, { tenant });
    }
    names.add(tenant);
  }
}
