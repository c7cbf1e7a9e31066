import { addressText, parseAddress } from '../control/index.js';
import { DualPathError } from '../errors/index.js';

export interface EtcdLocation {
  /** host:port of each member. */
  readonly endpoints: readonly string[];
  /** Of the schedulers that choose one among them. */
  readonly name: string;
}

const defaultPort = 2379;

/** `etcd://HOST:PORT,HOST:PORT/NAME`; port 2379 and name `dualpath` unless given. @throws INVALID_ARGUMENT */
export function parseEtcdUrl(url: string): EtcdLocation {
  const match = /^etcd:\/\/([^/?#\s]+)(?:\/([A-Za-z0-9][A-Za-z0-9._-]{0,63})?)?$/.exec(url);
  try {
    if (!match) throw new Error('it is no such URL');
    const endpoints = match[1]!.split(',').map((part) => {
      const hasPort = /:\d+$/.test(part) && !/^[^[]*:.*:/.test(part);
      return addressText(parseAddress(hasPort ? part : `${part}:${defaultPort}`));
    });
    return { endpoints, name: match[2] ?? 'dualpath' };
  } catch (error) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `membership '${url}': ${(error as Error).message}; give etcd://HOST:PORT,HOST:PORT/NAME`,
      { membership: url },
    );
  }
}
