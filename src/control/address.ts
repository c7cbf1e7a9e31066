/** Where a node listens. */
import { isIPv6 } from 'node:net';
import { DualPathError } from '../errors/index.js';

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** Of TLS, as PEM. With `ca` each side demands a certificate of the other. */
export interface TlsFiles {
  readonly key: Buffer;
  readonly cert: Buffer;
  readonly ca?: Buffer;
}

/** `host:port`, `[IPv6]:port`. @param leastPort 0 where the system may choose. @throws INVALID_ARGUMENT */
export function parseAddress(text: string, leastPort: 0 | 1 = 1): Address {
  const match = /^(?:\[([0-9A-Fa-f:.%a-z]+)\]|([^\s:[\]]+)):(\d{1,5})$/.exec(text.trim());
  const host = match?.[1] ?? match?.[2];
  const port = Number(match?.[3]);
  if (host !== undefined && port >= leastPort && port <= 65_535) return { host, port };
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `'${text}' is no address; give host:port, such as 10.0.0.1:7001 or [fd00::1]:7001`,
    { address: text },
  );
}

export function addressText({ host, port }: Address): string {
  return isIPv6(host) ? `[${host}]:${port}` : `${host}:${port}`;
}
