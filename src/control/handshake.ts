/**
 * How a control connection begins:
 *
 *   dialler   hello      who it is, a nonce
 *   listener  challenge  who it is, a nonce, proof of the token over both
 *   dialler   proof      the same, and the last message it has received of the session
 *   listener  welcome    the last message it has received
 *
 * Either says `refuse` with an error instead. Only a side that has been proved right changes anything here.
 */
import { z } from 'zod';
import { DualPathError, errorCodes, type ErrorCode } from '../errors/index.js';
import {
  challengeSchema,
  checkHello,
  checkProof,
  controlVersion,
  helloOf,
  helloSchema,
  proofOf,
  proofSchema,
  refuseSchema,
  welcomeSchema,
  type Hello,
} from './auth.js';
import { decodeMessage } from './codec.js';
import { frameKinds, type Frame } from './frame.js';
import { parseMessage, type FrameSocket } from './frame-socket.js';
import type { Session } from './session.js';

export interface Identity {
  readonly name: string;
  /** Of model and layout. */
  readonly identity: string;
  readonly token: Uint8Array | undefined;
}

export interface Met {
  readonly node: string;
  readonly session: Session;
  /** The other side's session. */
  readonly peerSession: string;
  /** Number of the last message that the other side has received. */
  readonly received: number;
}

/** The other side refused; trying again would not help. */
export class RefusedError extends DualPathError {}

/** The other side does not remember the session: a new one must begin. */
export class ForgottenError extends DualPathError {}

/** @throws PEER_LOST; RefusedError, ForgottenError, and DualPathError where this side refuses the other */
export async function dial(socket: FrameSocket, own: Identity, session: Session): Promise<Met> {
  const hello = helloOf({
    node: own.name,
    identity: own.identity,
    token: own.token,
    session: session.id,
    peerSession: session.peerId,
  });
  socket.sendMessage(frameKinds.hello, hello);
  const challenge = await answer(socket, frameKinds.challenge, 'challenge', challengeSchema);
  checkHello(hello, challenge);
  checkProof(proofOf(own.token, 'listener', hello, challenge), challenge.proof, challenge.node);
  if (!session.goesOnWith(challenge.session)) {
    throw new ForgottenError('PEER_LOST', `'${challenge.node}' has begun anew`);
  }
  const proof = proofOf(own.token, 'dialler', hello, challenge);
  socket.sendMessage(frameKinds.proof, { proof, received: session.received });
  const { received } = await answer(socket, frameKinds.welcome, 'welcome', welcomeSchema);
  return { node: challenge.node, session, peerSession: challenge.session, received };
}

/**
 * @param sessionWith the session with a node, if there is one
 * @throws PEER_LOST, and what the other side was refused for
 */
export async function accept(
  socket: FrameSocket,
  own: Identity,
  sessionWith: (node: string, peerSession: string) => Session,
): Promise<Met> {
  try {
    const peer = helloFrom(await socket.take());
    const session = sessionWith(peer.node, peer.session);
    const hello = helloOf({
      node: own.name,
      identity: own.identity,
      token: own.token,
      session: session.id,
      peerSession: session.peerId,
    });
    checkHello(hello, peer);
    const proof = proofOf(own.token, 'listener', peer, hello);
    socket.sendMessage(frameKinds.challenge, { ...hello, proof });
    const word = await answer(socket, frameKinds.proof, 'proof', proofSchema);
    checkProof(proofOf(own.token, 'dialler', peer, hello), word.proof, peer.node);
    return { node: peer.node, session, peerSession: peer.session, received: word.received };
  } catch (error) {
    if (error instanceof DualPathError && error.code !== 'PEER_LOST') refuse(socket, error);
    else socket.destroy();
    throw error;
  }
}

export function refuse(socket: FrameSocket, { code, message }: DualPathError): void {
  socket.finish(frameKinds.refuse, { code, message: message.slice(0, 2048) });
}

/** Of another version it is understood as far as needed to say so. */
function helloFrom(frame: Frame): Hello {
  if (frame.kind === frameKinds.hello) {
    const versions = z.object({ magic: z.literal('dualpath control'), version: z.int() });
    const said = versions.safeParse(decodeMessage(frame.body));
    if (said.success && said.data.version !== controlVersion) {
      throw new DualPathError(
        'INVALID_ARGUMENT',
        `version ${said.data.version} of the control protocol, this side speaks version ${controlVersion}; ` +
          'run the same version of dualpath on both sides',
        { version: controlVersion, peer_version: said.data.version },
      );
    }
  }
  return parseFrame(frame, frameKinds.hello, 'hello', helloSchema);
}

async function answer<T>(
  socket: FrameSocket,
  kind: Frame['kind'],
  what: string,
  schema: z.ZodType<T>,
): Promise<T> {
  return parseFrame(await socket.take(), kind, what, schema);
}

function parseFrame<T>(frame: Frame, kind: Frame['kind'], what: string, schema: z.ZodType<T>): T {
  if (frame.kind === frameKinds.refuse) throw refusal(frame.body);
  if (frame.kind === frameKinds.silent) throw new DualPathError('PEER_LOST', 'the other side heard nothing');
  if (frame.kind !== kind) {
    throw new DualPathError(
      'INVALID_ARGUMENT',
      `control connection: a frame of kind ${frame.kind} where a ${what} was expected`,
    );
  }
  return parseMessage(what, schema, frame.body);
}

/** An error that the other side sent, with its code where this version knows it. */
export function refusal(body: Buffer): RefusedError {
  const { code, message } = parseMessage('refuse', refuseSchema, body);
  const known = code in errorCodes ? (code as ErrorCode) : 'INVALID_ARGUMENT';
  return new RefusedError(known, message);
}
