/** Options of commands that join the control network. */
import { readFileSync } from 'node:fs';
import { InvalidArgumentError, type Command } from 'commander';
import { parseAddress, type Address, type TlsFiles } from '../control/index.js';
import { DualPathError } from '../errors/index.js';

export interface ControlFlags {
  tokenFile?: string;
  tlsCert?: string;
  tlsKey?: string;
  tlsCa?: string;
}

export function addControlOptions(command: Command): Command {
  return command
    .option('--token-file <file>', 'shared secret of all engines and drivers; without it: this host alone')
    .option('--tls-cert <file>', 'certificate (PEM): control connections are TLS')
    .option('--tls-key <file>', 'its key (PEM)')
    .option('--tls-ca <file>', 'authority that the other side must have its certificate from (PEM)');
}

export function addressOf(text: string): Address {
  try {
    return parseAddress(text);
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}

/** As addressOf, with a port that the system may choose: 0. */
export function listenAddressOf(text: string): Address {
  try {
    return parseAddress(text, 0);
  } catch (error) {
    throw new InvalidArgumentError((error as Error).message);
  }
}

/** For ControlNode. @throws INVALID_ARGUMENT for files that cannot be read */
export function controlOptionsOf(flags: ControlFlags): {
  readonly token?: Uint8Array;
  readonly tls?: TlsFiles;
} {
  const { tokenFile, tlsCert, tlsKey, tlsCa } = flags;
  if ((tlsCert === undefined) !== (tlsKey === undefined) || (tlsCa !== undefined && tlsCert === undefined)) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      'TLS needs --tls-cert and --tls-key, and --tls-ca beside them',
    );
  }
  // A final newline is an editor's, not the secret's.
  const token =
    tokenFile === undefined ? undefined : Buffer.from(read(tokenFile).toString('latin1').trimEnd(), 'latin1');
  const tls =
    tlsCert === undefined || tlsKey === undefined
      ? undefined
      : { cert: read(tlsCert), key: read(tlsKey), ...(tlsCa === undefined ? {} : { ca: read(tlsCa) }) };
  return { ...(token === undefined ? {} : { token }), ...(tls === undefined ? {} : { tls }) };
}

function read(file: string): Buffer {
  try {
    return readFileSync(file);
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new DualPathError('INVALID_ARGUMENT', `cannot read '${file}': ${why}`, { path: file }, { cause });
  }
}
