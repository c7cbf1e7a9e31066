/**
 * The control plane of libibverbs by FFI (koffi): devices, ports, GIDs. No data passes here; posting and polling are inline
 * functions of rdma-core that no FFI can reach, and belong to the add-on. Structures and constants: infiniband/verbs.h.
 */
import { createRequire } from 'node:module';
import { getSystemErrorName } from 'node:util';
import type koffiModule from 'koffi';
import type { GidType, LinkLayer } from './gid.js';

export const libraryName = 'libibverbs.so.1';

export interface LibraryGid {
  readonly index: number;
  readonly gid: string;
  readonly type: GidType;
  readonly interfaceIndex: number;
}

export interface LibraryPort {
  readonly port: number;
  readonly state: string;
  readonly linkLayer: LinkLayer;
  readonly mtuBytes: number;
  readonly lid: number;
  readonly gids: readonly LibraryGid[] | null;
}

export interface LibraryDevice {
  readonly name: string;
  readonly guid: string;
  /** null: it could not be opened, for this reason. */
  readonly ports: readonly LibraryPort[] | null;
  readonly openError: string | null;
}

/** What the library says, or why it cannot be asked. */
export type LibraryAnswer =
  | { readonly devices: readonly LibraryDevice[]; readonly problem: null }
  | { readonly devices: null; readonly problem: string };

const portStates = ['nop', 'down', 'init', 'armed', 'active', 'active-defer'];
const maxDevices = 64;
const maxPorts = 8;
const maxGids = 256;
/** struct ibv_port_attr; ibv_query_port(3) as exported fills the fields up to `flags`. */
const portAttrFields = {
  state: 'int',
  max_mtu: 'int',
  active_mtu: 'int',
  gid_tbl_len: 'int',
  port_cap_flags: 'uint32_t',
  max_msg_sz: 'uint32_t',
  bad_pkey_cntr: 'uint32_t',
  qkey_viol_cntr: 'uint32_t',
  pkey_tbl_len: 'uint16_t',
  lid: 'uint16_t',
  sm_lid: 'uint16_t',
  lmc: 'uint8_t',
  max_vl_num: 'uint8_t',
  sm_sl: 'uint8_t',
  subnet_timeout: 'uint8_t',
  init_type_reply: 'uint8_t',
  active_width: 'uint8_t',
  active_speed: 'uint8_t',
  phys_state: 'uint8_t',
  link_layer: 'uint8_t',
  flags: 'uint8_t',
  port_cap_flags2: 'uint16_t',
};
/** struct ibv_gid_entry. */
const gidEntryBytes = 32;

interface PortAttr {
  readonly state: number;
  readonly active_mtu: number;
  readonly lid: number;
  readonly link_layer: number;
}

type Pointer = bigint | null;

type Koffi = typeof koffiModule;

interface Functions {
  readonly koffi: Koffi;
  readonly list: (count: [number]) => Pointer;
  readonly freeList: (list: Pointer) => void;
  readonly name: (device: Pointer) => string;
  readonly guid: (device: Pointer) => bigint;
  readonly open: (device: Pointer) => Pointer;
  readonly close: (context: Pointer) => number;
  readonly queryPort: (context: Pointer, port: number, attr: object) => number;
  /** Since rdma-core 32. */
  readonly queryGids: ((...args: [Pointer, Buffer, number, number, number]) => number | bigint) | null;
}

/** Asks the library; never throws. `name` is a stand-in's path in tests. */
export function askLibrary(name: string = libraryName): LibraryAnswer {
  const why = (cause: unknown): string => (cause instanceof Error ? cause.message : String(cause));
  let koffi: Koffi;
  try {
    koffi = createRequire(import.meta.url)('koffi') as Koffi;
  } catch (cause) {
    return {
      devices: null,
      problem: `koffi, which calls libibverbs, could not be loaded (${why(cause)}); install the npm packages`,
    };
  }
  let functions: Functions;
  try {
    functions = load(koffi, name);
  } catch (cause) {
    return {
      devices: null,
      problem:
        `${name} could not be loaded (${why(cause)}); install rdma-core's libibverbs ` +
        '(Debian: libibverbs1 and ibverbs-providers)',
    };
  }
  return { devices: devicesOf(functions), problem: null };
}

function load(koffi: Koffi, name: string): Functions {
  const library = koffi.load(name);
  const pointer = 'void *';
  const optional = (symbol: string): Functions['queryGids'] => {
    try {
      return library.func(symbol, 'int64_t', [pointer, pointer, 'size_t', 'uint32_t', 'size_t']);
    } catch {
      return null;
    }
  };
  const portAttr = koffi.struct(portAttrFields);
  return {
    koffi,
    list: library.func('ibv_get_device_list', pointer, [koffi.out(koffi.pointer('int'))]),
    freeList: library.func('ibv_free_device_list', 'void', [pointer]),
    name: library.func('ibv_get_device_name', 'str', [pointer]),
    guid: library.func('ibv_get_device_guid', 'uint64_t', [pointer]),
    open: library.func('ibv_open_device', pointer, [pointer]),
    close: library.func('ibv_close_device', 'int', [pointer]),
    queryPort: library.func('ibv_query_port', 'int', [
      pointer,
      'uint8_t',
      koffi.out(koffi.pointer(portAttr)),
    ]),
    queryGids: optional('_ibv_query_gid_table'),
  };
}

function devicesOf(functions: Functions): LibraryDevice[] {
  const count: [number] = [0];
  const { koffi } = functions;
  const list = functions.list(count);
  if (list === null) return [];
  try {
    // An empty list is one, too; koffi has no arrays of nothing.
    if (count[0] === 0) return [];
    const found = koffi.decode(list, koffi.array('void *', Math.min(count[0], maxDevices))) as Pointer[];
    return found.map((device) => deviceOf(functions, device));
  } finally {
    functions.freeList(list);
  }
}

function deviceOf(functions: Functions, device: Pointer): LibraryDevice {
  const name = functions.name(device);
  // In network order: its bytes as they lie are the GUID's.
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(functions.guid(device));
  const guid = bytes.toString('hex').replace(/(.{4})(?!$)/g, '$1:');
  const context = functions.open(device);
  if (context === null) {
    const error = `opening it failed: ${getSystemErrorName(-functions.koffi.errno())}`;
    return {
      name,
      guid,
      ports: null,
      openError: `${error}; check the permissions of /dev/infiniband/uverbs*`,
    };
  }
  try {
    return { name, guid, ports: portsOf(functions, context), openError: null };
  } finally {
    functions.close(context);
  }
}

function portsOf(functions: Functions, context: Pointer): LibraryPort[] {
  const gids = gidsOf(functions, context);
  const ports: LibraryPort[] = [];
  for (let port = 1; port <= maxPorts; port++) {
    const attr = {};
    if (functions.queryPort(context, port, attr) !== 0) break;
    const { state, active_mtu: mtu, lid, link_layer: linkLayer } = attr as PortAttr;
    ports.push({
      port,
      state: portStates[state] ?? `state ${state}`,
      linkLayer: linkLayer === 1 ? 'infiniband' : linkLayer === 2 ? 'ethernet' : 'unknown',
      mtuBytes: 128 << mtu,
      lid,
      gids: gids?.filter((gid) => gid.port === port) ?? null,
    });
  }
  return ports;
}

function gidsOf(functions: Functions, context: Pointer): (LibraryGid & { port: number })[] | null {
  if (functions.queryGids === null) return null;
  const table = Buffer.alloc(maxGids * gidEntryBytes);
  const count = Number(functions.queryGids(context, table, maxGids, 0, gidEntryBytes));
  if (count < 0) return null;
  const types: readonly GidType[] = ['ib', 'roce-v1', 'roce-v2'];
  return Array.from({ length: count }, (_, i) => {
    const entry = table.subarray(i * gidEntryBytes, (i + 1) * gidEntryBytes);
    return {
      gid: entry.toString('hex', 0, 16).replace(/(.{4})(?!$)/g, '$1:'),
      index: entry.readUInt32LE(16),
      port: entry.readUInt32LE(20),
      type: types[entry.readUInt32LE(24)] ?? 'unknown',
      interfaceIndex: entry.readUInt32LE(28),
    };
  });
}
