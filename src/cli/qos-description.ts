/** The file that describes the traffic classes. */
import { readFileSync } from 'node:fs';
import { DualPathError } from '../errors/index.js';
import type { QosDescription } from '../qos/index.js';

export interface DescriptionFlags {
  readonly classes?: string;
  readonly exact?: boolean;
}

/** @throws INVALID_ARGUMENT */
export async function descriptionOf({ classes, exact }: DescriptionFlags): Promise<QosDescription> {
  const { parseQos } = await import('../qos/index.js');
  const description = parseQos(classes === undefined ? {} : readJson(classes), classes ?? 'the default');
  return exact === true ? { ...description, highLimit: 'from_shares', lowTable: 'low_lanes' } : description;
}

function readJson(path: string): unknown {
  const text = readText(path);
  try {
    return JSON.parse(text);
  } catch (cause) {
    const message = `${path}: not JSON: ${(cause as Error).message}`;
    throw new DualPathError('INVALID_ARGUMENT', message, { file: path }, { cause });
  }
}

/** @throws INVALID_ARGUMENT where it cannot be read */
export function readText(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (cause) {
    throw new DualPathError('INVALID_ARGUMENT', (cause as Error).message, { file: path }, { cause });
  }
}
