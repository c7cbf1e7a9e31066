/**
 * The arbiter tables of an InfiniBand port of this host, as its subnet management agent tells them: directed-route SMPs of no
 * hop through libibumad (InfiniBand Architecture Specification, volume 1, 14.2.5: PortInfo, SLtoVLMappingTable, VLArbitrationTable).
 */
import { getSystemErrorName } from 'node:util';
import type { LaneWeight } from '../rdma/index.js';
import { loadKoffi } from './libc.js';

export interface PortTables {
  readonly high: readonly LaneWeight[];
  readonly low: readonly LaneWeight[];
  /** In units of 4096 bytes. */
  readonly highLimit: number;
  /** The virtual lane of each of the 16 service levels. */
  readonly slToVl: readonly number[];
  /** Data lanes in operation. */
  readonly lanes: number;
  /** Lanes of the link, such as 4 for 4X, active and the most that both ends' port says it can. */
  readonly widthActive: number;
  readonly widthSupported: number;
}

export type ArbitrationAnswer =
  | { readonly tables: PortTables; readonly problem: null }
  | { readonly tables: null; readonly problem: string };

const libraryName = 'libibumad.so.3';
const directedRoute = 0x81;
const attributes = { portInfo: 0x15, slToVl: 0x17, arbitration: 0x18 } as const;
const madBytes = 256;
const dataOffset = 64;
const dataBytes = 64;
const entriesPerBlock = 32;
const timeoutMs = 200;
const retries = 2;
/** LinkWidthSupported is a mask, LinkWidthActive one bit of it. */
const widths: readonly (readonly [bit: number, lanes: number])[] = [
  [1, 1],
  [16, 2],
  [2, 4],
  [4, 8],
  [8, 12],
];

interface Umad {
  readonly init: () => number;
  readonly openPort: (device: string, port: number) => number;
  readonly closePort: (port: number) => number;
  readonly register: (port: number, kind: number, version: number, rmpp: number, mask: null) => number;
  readonly size: () => number;
  readonly setAddress: (mad: Buffer, lid: number, qp: number, sl: number, qkey: number) => number;
  readonly send: (
    port: number,
    agent: number,
    mad: Buffer,
    bytes: number,
    timeout: number,
    retry: number,
  ) => number;
  readonly receive: (port: number, mad: Buffer, bytes: number[], timeout: number) => number;
  readonly status: (mad: Buffer) => number;
}

/** Never throws. `library` is a stand-in's path in tests. */
export function askArbitration(
  device: string,
  port: number,
  library: string = libraryName,
): ArbitrationAnswer {
  let umad: Umad;
  try {
    umad = load(library);
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return { tables: null, problem: `${library} could not be loaded (${why}); Debian: libibumad3` };
  }
  if (umad.init() !== 0)
    return { tables: null, problem: 'umad_init failed: the module ib_umad is not loaded' };
  const portId = umad.openPort(device, port);
  if (portId < 0) {
    return {
      tables: null,
      problem: `opening the port's umad failed (${nameOf(portId)}): as root, or with access to /dev/infiniband/umad*`,
    };
  }
  try {
    const agent = umad.register(portId, directedRoute, 1, 0, null);
    if (agent < 0) return { tables: null, problem: `umad_register: ${nameOf(agent)}` };
    return { tables: tablesOf(new Agent(umad, portId, agent), port), problem: null };
  } catch (error) {
    return { tables: null, problem: (error as Error).message };
  } finally {
    umad.closePort(portId);
  }
}

function nameOf(result: number): string {
  return result < 0 ? getSystemErrorName(result) : String(result);
}

function load(name: string): Umad {
  const koffi = loadKoffi();
  const library = koffi.load(name);
  return {
    init: library.func('umad_init', 'int', []),
    openPort: library.func('umad_open_port', 'int', ['str', 'int']),
    closePort: library.func('umad_close_port', 'int', ['int']),
    register: library.func('umad_register', 'int', ['int', 'int', 'int', 'uint8_t', 'void *']),
    size: library.func('umad_size', 'size_t', []),
    setAddress: library.func('umad_set_addr', 'int', ['void *', 'int', 'int', 'int', 'int']),
    send: library.func('umad_send', 'int', ['int', 'int', 'void *', 'int', 'int', 'int']),
    receive: library.func('umad_recv', 'int', ['int', 'void *', koffi.inout(koffi.pointer('int')), 'int']),
    status: library.func('umad_status', 'int', ['void *']),
  };
}

class Agent {
  readonly #umad: Umad;
  readonly #port: number;
  readonly #agent: number;
  #transaction = 1;

  constructor(umad: Umad, port: number, agent: number) {
    this.#umad = umad;
    this.#port = port;
    this.#agent = agent;
  }

  /** The 64 bytes of an attribute. @throws when the agent does not answer, or refuses */
  get(attribute: number, modifier: number): Buffer {
    const header = Number(this.#umad.size());
    const packet = Buffer.alloc(header + madBytes);
    const mad = packet.subarray(header);
    // Base version, class, class version, SubnGet().
    mad.set([1, directedRoute, 1, 1]);
    mad.writeUInt32BE(this.#transaction++, 12);
    mad.writeUInt16BE(attribute, 16);
    mad.writeUInt32BE(modifier, 20);
    // The permissive LID at both ends: no hop.
    mad.writeUInt32BE(0xffffffff, 32);
    this.#umad.setAddress(packet, 0xffff, 0, 0, 0);
    const sent = this.#umad.send(this.#port, this.#agent, packet, madBytes, timeoutMs, retries);
    if (sent !== 0) throw new Error(`umad_send: ${nameOf(sent)}`);
    const received = this.#umad.receive(this.#port, packet, [madBytes], timeoutMs * (retries + 2));
    if (received < 0) throw new Error(`umad_recv: ${nameOf(received)}`);
    const failed = this.#umad.status(packet) || mad.readUInt16BE(4) & 0x7fff;
    if (failed !== 0) throw new Error(`the port's agent refuses attribute ${attribute}: status ${failed}`);
    return mad.subarray(dataOffset, dataOffset + dataBytes);
  }
}

function tablesOf(agent: Agent, port: number): PortTables {
  const info = agent.get(attributes.portInfo, port);
  const block = (number: number): LaneWeight[] => {
    const data = agent.get(attributes.arbitration, (number << 16) | port);
    return Array.from({ length: entriesPerBlock }, (_, i) => ({
      lane: data[2 * i]! & 0xf,
      weight: data[2 * i + 1]!,
    }));
  };
  const table = (first: number, entries: number): LaneWeight[] =>
    [...block(first), ...(entries > entriesPerBlock ? block(first + 1) : [])].slice(0, entries);
  const [low, high] = [table(1, info[40]!), table(3, info[39]!)];
  const map = agent.get(attributes.slToVl, 0);
  const operational = info[43]! >> 4;
  return {
    high,
    low,
    highLimit: info[38]!,
    slToVl: Array.from({ length: 16 }, (_, sl) => (map[sl >> 1]! >> (sl % 2 === 0 ? 4 : 0)) & 0xf),
    // VL0; VL0-1; 0-3; 0-7; 0-14.
    lanes: [0, 1, 2, 4, 8, 15][operational] ?? 0,
    widthActive: lanesOf(info[31]!),
    widthSupported: lanesOf(info[30]!),
  };
}

const lanesOf = (mask: number): number =>
  Math.max(0, ...widths.filter(([bit]) => (mask & bit) !== 0).map(([, lanes]) => lanes));
