/** Looks at the other host too, and sends something to it. */
import type { Methods, RemoteNode, Sides } from '../bench/index.js';
import { isDualPathError } from '../errors/index.js';
import type { HostView } from '../host-view/index.js';
import type { Finding, HostOptions } from './check.js';
import { counterDeltas, excesses, type Counters } from './counters.js';
import { diagnose, type Diagnosis } from './diagnose.js';
import {
  comparePeers,
  deviceCounters,
  peerFinding,
  summarise,
  type ClockOffset,
  type HostSummary,
} from './peer.js';

const probeMs = 1000;
const probeBytes = 65536;
const probeRequests = 128;
const probeChain = 16;
const probeDepth = 64;

/** What the other side answers. */
function doctorMethods(view: HostView, options: HostOptions): Methods {
  const { description } = options;
  return {
    doctorSummary: () => summarise(view, description),
    doctorDiagnosis: () => diagnose(view, options),
    doctorCounters: (device: string) => deviceCounters(view, description, device),
  };
}

export interface PeerOptions extends HostOptions {
  readonly peer: string;
  readonly controlPort?: number;
  /** Of both sides; default: the first that can be used here. */
  readonly device?: string;
  readonly signal?: AbortSignal;
}

/** Be the other side of one `diagnosePeer`. */
export async function serveDoctor(
  view: HostView,
  options: HostOptions & { address: string; port?: number; signal: AbortSignal },
): Promise<void> {
  const { address, signal } = options;
  const { defaultControlPort, serveNode } = await import('../bench/index.js');
  const { port = defaultControlPort } = options;
  await serveNode({ address, port, once: true, signal, methods: doctorMethods(view, options) });
}

export interface PeerDiagnosis {
  /** Between the two. */
  readonly findings: readonly Finding[];
  readonly there: Diagnosis & { readonly name: string };
}

/** @throws PEER_LOST when nobody serves at the address */
export async function diagnosePeer(view: HostView, options: PeerOptions): Promise<PeerDiagnosis> {
  const { peer, description, signal } = options;
  // Only here: a host alone is looked at without loading the benchmarks.
  const { connectNode, defaultControlPort } = await import('../bench/index.js');
  const { controlPort = defaultControlPort } = options;
  const remote = await connectNode(peer, controlPort, signal);
  try {
    const { summary, clock } = await askSummary(remote);
    const there = (await remote.call('doctorDiagnosis', [])) as Diagnosis;
    const compared = comparePeers(summarise(view, description), summary, clock);
    const probed = await probe(view, options, remote);
    return { findings: [...compared, ...probed], there: { ...there, name: summary.name } };
  } finally {
    remote.disconnect();
  }
}

async function askSummary(remote: RemoteNode): Promise<{ summary: HostSummary; clock: ClockOffset }> {
  await remote.call('doctorSummary', []);
  const sentMs = Date.now();
  const summary = (await remote.call('doctorSummary', [])) as HostSummary;
  const roundTripMs = Date.now() - sentMs;
  const offsetMs = summary.timeMs - (sentMs + roundTripMs / 2);
  return { summary, clock: { offsetMs, uncertaintyMs: roundTripMs / 2 } };
}

async function probe(view: HostView, options: PeerOptions, remote: RemoteNode): Promise<Finding[]> {
  const { peer, description, device } = options;
  let sides: Sides | undefined;
  try {
    const bench = await import('../bench/index.js');
    sides = bench.Sides.over({ peer, ...(device === undefined ? {} : { device }) }, remote);
    const read = async (): Promise<{ here: Counters; there: Counters }> => ({
      here: deviceCounters(view, description, sides!.device),
      there: (await remote.call('doctorCounters', [sides!.device])) as Counters,
    });
    const before = await read();
    const moved = await moveBytes(sides);
    const after = await read();
    return [
      peerFinding('peer-probe', 'ok', `${sides.device} moved ${moved} bytes in class kv`),
      ...counterFindings('here', counterDeltas(before.here, after.here)),
      ...counterFindings('there', counterDeltas(before.there, after.there)),
    ];
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const severity = isDualPathError(error, 'ADDON_MISSING') ? 'unknown' : 'error';
    return [peerFinding('peer-probe', severity, message)];
  } finally {
    await sides?.close();
  }
}

/** Writes to and reads from the other side, in turns, for a second. */
async function moveBytes(sides: Sides): Promise<number> {
  const load = await sides.connect({
    ...{ bytes: probeBytes, queuePairs: 1, depth: probeDepth },
    trafficClass: 'kv',
  });
  let moved = 0;
  const endMs = Date.now() + probeMs;
  do {
    for (const kind of ['write', 'read'] as const) {
      const run = { kind, bytes: probeBytes, chain: probeChain, requests: probeRequests };
      moved += (await load.run(run)).bytes;
    }
  } while (Date.now() < endMs);
  await load.close();
  return moved;
}

function counterFindings(side: 'here' | 'there', deltas: Counters): Finding[] {
  const found = excesses(deltas);
  if (found.length === 0) return [peerFinding('peer-counters', 'ok', `no error counter grew ${side}`)];
  return found.map(({ name, count, packets, meaning }) => {
    const text = `${side}: ${name} grew by ${count} in ${packets} packets: ${meaning.meaning}`;
    return peerFinding('peer-counters', 'warning', text, meaning.remedy);
  });
}
