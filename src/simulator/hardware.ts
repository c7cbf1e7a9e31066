import { DualPathError } from '../errors/index.js';
import { closest } from '../layout/index.js';

/** A kind of node. Rates are of one direction. */
export interface Hardware {
  readonly name: string;
  /** Where the numbers come from. */
  readonly source: string;
  /** Anything but the testbed that the constants were fitted on. */
  readonly isExtrapolation: boolean;
  readonly gpusPerNode: number;
  /** Dense BF16; only ratios between kinds of hardware are used. */
  readonly peakFlopsPerS: number;
  readonly hbmBytes: number;
  readonly hbmBytesPerS: number;
  /** The compute NIC paired with each GPU. */
  readonly cnicBytesPerS: number;
  /** Storage NICs of a node together. */
  readonly snicBytesPerS: number;
  readonly dramBytesPerS: number;
}

/** 400 Gb/s. */
const ndrBytesPerS = 50e9;

export const hardwarePresets: readonly Hardware[] = [
  {
    name: 'hopper',
    source:
      "DualPath's testbed: 8 Hopper GPUs, 8 CNICs and 1 SNIC of 400 Gb/s a node, 500 GB/s of DRAM; " +
      'H100 SXM data sheet: 80 GB at 3.35 TB/s, 989 TFLOP/s dense BF16',
    isExtrapolation: false,
    gpusPerNode: 8,
    peakFlopsPerS: 989e12,
    hbmBytes: 80e9,
    hbmBytesPerS: 3.35e12,
    cnicBytesPerS: ndrBytesPerS,
    snicBytesPerS: ndrBytesPerS,
    dramBytesPerS: 500e9,
  },
  {
    name: 'a100',
    source:
      'A100 SXM data sheet: 80 GB at 2.04 TB/s, 312 TFLOP/s dense BF16; DGX A100: 8 NICs of 200 Gb/s for compute, ' +
      'one for storage, 16 channels of DDR4-3200 (410 GB/s)',
    isExtrapolation: true,
    gpusPerNode: 8,
    peakFlopsPerS: 312e12,
    hbmBytes: 80e9,
    hbmBytesPerS: 2.04e12,
    cnicBytesPerS: 25e9,
    snicBytesPerS: 25e9,
    dramBytesPerS: 410e9,
  },
];

/** @throws INVALID_ARGUMENT with the names that come near */
export function hardwareOf(name: string): Hardware {
  const found = hardwarePresets.find((hardware) => hardware.name === name);
  if (found) return found;
  const names = hardwarePresets.map((hardware) => hardware.name);
  const near = closest(name, names);
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `there is no hardware ${name}: ${near === undefined ? '' : `did you mean ${near}? `}Use ${names.join(', ')} or a JSON file`,
    { hardware: name },
  );
}

const fields = [
  'gpusPerNode',
  'peakFlopsPerS',
  'hbmBytes',
  'hbmBytesPerS',
  'cnicBytesPerS',
  'snicBytesPerS',
  'dramBytesPerS',
] as const;

/** Keys of a hardware file: `gpus_per_node` and so on. */
const keyOf = (field: string): string => field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

/**
 * Custom hardware: an object with all keys of `Hardware` in snake_case, numbers above 0, and a name.
 *
 * @throws INVALID_ARGUMENT
 */
export function parseHardware(value: unknown, place: string): Hardware {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `${place} is no JSON object: give ${fields.map(keyOf).join(', ')}`,
    );
  }
  const given = value as Record<string, unknown>;
  const known = ['name', ...fields.map(keyOf)];
  const unknown = Object.keys(given).find((key) => !known.includes(key));
  if (unknown !== undefined) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `${place} has ${unknown}, which is unknown: use ${known.join(', ')}`,
      {
        key: unknown,
      },
    );
  }
  const numbers = Object.fromEntries(
    fields.map((field) => {
      const number = given[keyOf(field)];
      if (typeof number === 'number' && Number.isFinite(number) && number > 0) return [field, number];
      const text = JSON.stringify(number) ?? 'nothing';
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `${keyOf(field)} of ${place} is ${text}: give a number above 0`,
        {
          key: keyOf(field),
        },
      );
    }),
  ) as Record<(typeof fields)[number], number>;
  const name = typeof given.name === 'string' && given.name !== '' ? given.name : place;
  return {
    name,
    source: place,
    isExtrapolation: true,
    ...numbers,
    gpusPerNode: Math.floor(numbers.gpusPerNode),
  };
}
