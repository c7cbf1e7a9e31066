import { PassThrough } from 'node:stream';
import { textOf } from '../cli/support.js';

export type Line = Readonly<Record<string, unknown>> & { readonly msg: string };

/** What a log has written: every line is one document. */
export const linesOf = (text: string): Line[] =>
  text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);

/** A stream to log to, and its lines so far. */
export function memoryStream(): { readonly stream: PassThrough; readonly lines: () => Line[] } {
  const stream = new PassThrough();
  let text = '';
  return { stream, lines: () => linesOf((text += textOf(stream))) };
}
