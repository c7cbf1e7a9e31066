import { DualPathError } from '../errors/index.js';
import { requireFinite, requireInteger } from './check.js';
import { readPolicies, type EngineCapacity, type ReadPolicy } from './types.js';

export interface AdmissionOptions {
  readonly engines: readonly EngineCapacity[];
  readonly policy: ReadPolicy;
  /** Tokens of a block. */
  readonly blockTokens: number;
  /** Bytes of a Full Block. */
  readonly blockBytes: number;
  /** DE buffer blocks that a request keeps until it ends, for persisting what it generates. */
  readonly decodeSpareBlocks: number;
  /** Most requests that may wait. */
  readonly maxWaiting: number;
  /** Breaks ties between engines. */
  readonly seed: number;
}

const OPTION_NAMES: readonly (keyof AdmissionOptions)[] = [
  'engines',
  'policy',
  'blockTokens',
  'blockBytes',
  'decodeSpareBlocks',
  'maxWaiting',
  'seed',
];

/** @throws INVALID_ARGUMENT for a misspelled option or an impossible value; engines are the ledger's to check */
export function checkOptions(options: AdmissionOptions): void {
  for (const name of Object.keys(options)) {
    if ((OPTION_NAMES as readonly string[]).includes(name)) continue;
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `option ${name} does not exist: use ${OPTION_NAMES.join(', ')}`,
      { option: name },
    );
  }
  if (!Object.hasOwn(readPolicies, options.policy)) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `policy ${String(options.policy)} does not exist: use ${Object.keys(readPolicies).join(', ')}`,
      { policy: String(options.policy) },
    );
  }
  requireInteger('blockTokens', options.blockTokens, 1, 'give the tokens of a block, such as 64');
  requireFinite('blockBytes', options.blockBytes, 'positive', 'give the bytes of a Full Block');
  requireInteger('decodeSpareBlocks', options.decodeSpareBlocks, 0, 'give blocks for persisting, such as 2');
  requireInteger('maxWaiting', options.maxWaiting, 1, 'give the most requests that may wait');
  requireInteger('seed', options.seed, 0, 'give any such integer');
}
