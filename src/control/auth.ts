/**
 * Each side proves to the other that it has the shared token, by an HMAC over both sides' nonces and words; the token
 * itself is never sent. Connections without a token are for one host alone.
 */
import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto';
import { lookup } from 'node:dns/promises';
import { BlockList, isIPv6 } from 'node:net';
import { z } from 'zod';
import { DualPathError } from '../errors/index.js';

export const controlVersion = 1;
const leastTokenBytes = 16;

const name = z.string().min(1).max(128);
const hex = (bytes: number): z.ZodString => z.string().regex(new RegExp(`^[0-9a-f]{${bytes * 2}}$`));
const session = hex(16);

/** What each side says of itself before anything else. */
const word = {
  magic: z.literal('dualpath control'),
  version: z.int(),
  /** Of the node: unique among those that meet. */
  node: name,
  /** Of model and layout. */
  identity: z.string().max(1024),
  nonce: hex(32),
  authenticated: z.boolean(),
  session,
  /** What it takes for the other side's session; null: none yet. */
  peerSession: session.nullable(),
};

export const helloSchema = z.object(word);
export const challengeSchema = z.object({ ...word, proof: hex(32) });
/** Number of the last message received: the other side goes on after it. */
export const proofSchema = z.object({ proof: hex(32), received: z.int().min(0) });
export const welcomeSchema = z.object({ received: z.int().min(0) });
export const refuseSchema = z.object({ code: z.string().max(64), message: z.string().max(2048) });

export type Hello = z.infer<typeof helloSchema>;

export function helloOf(own: {
  node: string;
  identity: string;
  token: Uint8Array | undefined;
  session: string;
  peerSession: string | null;
}): Hello {
  const { token, ...rest } = own;
  return {
    magic: 'dualpath control',
    version: controlVersion,
    nonce: randomBytes(32).toString('hex'),
    authenticated: token !== undefined,
    ...rest,
  };
}

/** What `role` proves the token with. */
export function proofOf(
  token: Uint8Array | undefined,
  role: 'dialler' | 'listener',
  dialler: Hello,
  listener: Hello,
): string {
  const mac = createHmac('sha256', token ?? new Uint8Array());
  const said = ({ version, node, identity, nonce, session: own, peerSession }: Hello): unknown[] => [
    version,
    node,
    identity,
    nonce,
    own,
    peerSession,
  ];
  mac.update(JSON.stringify(['dualpath control', role, said(dialler), said(listener)]));
  return mac.digest('hex');
}

export function checkProof(expected: string, proof: string, node: string): void {
  if (timingSafeEqual(Buffer.from(expected), Buffer.from(proof))) return;
  throw new DualPathError(
    'UNAUTHENTICATED',
    `'${node}' has another token; give every engine and whoever drives them the same token file`,
    { node },
  );
}

/** @throws INVALID_ARGUMENT: another version or model; UNAUTHENTICATED: a token on one side only */
export function checkHello(own: Hello, peer: Hello): void {
  if (peer.version !== own.version) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `'${peer.node}' speaks version ${peer.version} of the control protocol, '${own.node}' version ${own.version}; ` +
        'run the same version of dualpath on both sides',
      { version: own.version, peer_version: peer.version },
    );
  }
  if (peer.identity !== own.identity) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `model and layout of '${peer.node}' are '${peer.identity}', of '${own.node}' '${own.identity}'; ` +
        'give both the same model and block size',
    );
  }
  if (peer.node === own.node) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `both sides are named '${own.node}'; give each engine a name of its own`,
      { node: own.node },
    );
  }
  if (peer.authenticated === own.authenticated) return;
  const [has, hasNot] = own.authenticated ? [own.node, peer.node] : [peer.node, own.node];
  throw new DualPathError(
    'UNAUTHENTICATED',
    `'${has}' has a token, '${hasNot}' has none; give both the same token file`,
  );
}

/** @throws INVALID_ARGUMENT for a token that could be guessed */
export function checkToken(token: Uint8Array): void {
  if (token.length >= leastTokenBytes) return;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `a token of ${token.length} bytes; give at least ${leastTokenBytes}, such as from: openssl rand -hex 32`,
    { token_bytes: token.length, least_bytes: leastTokenBytes },
  );
}

const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');
loopback.addSubnet('::ffff:127.0.0.0', 104, 'ipv6');

/** Without a token a connection stays on this host. @throws INVALID_ARGUMENT, PEER_LOST for a name that is not found */
export async function checkReach(host: string, token: Uint8Array | undefined): Promise<void> {
  if (token !== undefined) return;
  let addresses: readonly { readonly address: string }[];
  try {
    addresses = await lookup(host, { all: true });
  } catch (cause) {
    throw new DualPathError('PEER_LOST', `there is no host '${host}'`, { host }, { cause });
  }
  const outside = addresses.find(
    ({ address }) => !loopback.check(address, isIPv6(address) ? 'ipv6' : 'ipv4'),
  );
  if (outside === undefined) return;
  throw new DualPathError(
    'INVALID_ARGUMENT',
    `a control connection on ${outside.address} without a token; use 127.0.0.1, or give a token file`,
    { address: outside.address },
  );
}
