import { DualPathError } from '../errors/index.js';
import type { AdmissionOptions } from '../scheduler/index.js';
import type { LeaseOptions } from './types.js';

type Own = Omit<LeaseOptions, keyof AdmissionOptions | 'observe'> & { readonly maxWaiting?: number };

export type CheckedOptions = Required<Own> & Pick<LeaseOptions, 'observe'>;

/** Share of a lease that it lives longer here than its engine believes, whose clock may be slower. */
export const leaseMargin = 0.2;
/** Share of a lease by which time may go on at once: four leaps of the clock are within the margin. */
export const longestStep = leaseMargin / 4;

const defaults = {
  epochShare: 0,
  maxWaiting: 65_536,
  leaseS: 5,
  maxTries: 3,
  noEngineS: 60,
  clientGoneS: 60,
  retainS: 300,
  maxRetained: 65_536,
  maxPayloadBytes: 1 << 20,
  maxTotalPayloadBytes: 1 << 28,
} as const;

/** Epochs are Unix seconds or a little more, so that assignments' numbers are safe integers until 2106. */
const maxEpoch = 2 ** 32 - 1;

/** @throws INVALID_ARGUMENT */
export function checkLeaseOptions(options: LeaseOptions): {
  readonly lease: CheckedOptions;
  readonly admission: Omit<AdmissionOptions, 'engines' | 'admissionBase' | 'maxWaiting'>;
} {
  const { model, epoch, observe, graceS, ...rest } = options;
  const lease: Record<string, number> = { ...defaults };
  const admission: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(rest)) {
    if (name in defaults) lease[name] = value as number;
    else admission[name] = value;
  }
  lease['graceS'] = graceS ?? lease['leaseS']! * (1 + 2 * leaseMargin);
  for (const [name, value] of Object.entries(lease)) {
    const whole = name.startsWith('max');
    if (whole ? Number.isSafeInteger(value) && value > 0 : Number.isFinite(value) && value >= 0) continue;
    refuse(name, value, whole ? 'a positive integer' : 'a number, not negative');
  }
  if (lease['epochShare']! >= 1) refuse('epochShare', lease['epochShare']!, 'a number from 0, below 1');
  if (lease['leaseS'] === 0) refuse('leaseS', 0, 'seconds, more than 0');
  if (!Number.isSafeInteger(epoch) || epoch < 1 || epoch > maxEpoch) {
    refuse('epoch', epoch, `an integer from 1 to ${maxEpoch}, such as Unix seconds`);
  }
  if (model === '') refuse('model', NaN, 'the name of the model that is served');
  return {
    lease: { ...lease, model, epoch, ...(observe && { observe }) } as CheckedOptions,
    admission: admission as never,
  };
}

function refuse(name: string, value: number, must: string): never {
  throw new DualPathError('INVALID_ARGUMENT', `${name} is ${value}; give ${must}`, { name, value });
}
