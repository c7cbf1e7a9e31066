import type { GuestShare } from '../guest/index.js';

/** A folder that every host sees at its own path, writable; each host reads at most so much of it. */
export type RxeShare = Omit<GuestShare, 'tag'>;

export interface RxeOptions {
  /** A command for each host; one or two. */
  readonly commands: readonly (readonly string[])[];
  /** 'auto': the kernel of this machine where it has rdma_rxe and one host is wanted, else guests. */
  readonly on?: RxePlace;
  /** For all of it; what still runs then is killed. */
  readonly timeLimitMs: number;
  /** The folder that commands find in $DUALPATH_OUT; what they write there stays, with the guests' consoles. */
  readonly out: string;
  readonly cwd?: string;
  readonly env?: NodeJS.ProcessEnv;
  readonly shares?: readonly RxeShare[];
  /** Of each guest; default 2 processors where it is alone, 1 where there are two. */
  readonly cpus?: number;
  readonly memoryMiB?: number;
  /** A file for every frame that crosses the wire of two guests (pcap, the first bytes of each). */
  readonly capture?: string;
  /** Where kernel and initramfs are kept. */
  readonly cache?: string;
  readonly onStdout: (host: number, chunk: Buffer) => void;
  readonly onStderr: (host: number, chunk: Buffer) => void;
  readonly onProgress?: (step: string) => void;
  readonly signal?: AbortSignal;
}

export const rxePlaces = ['auto', 'host', 'guests'] as const;
export type RxePlace = (typeof rxePlaces)[number];

/** Hosts under way. */
export interface RxeHosts {
  /** What carries the traffic: for people, and to tell emulated figures apart. */
  readonly carriedBy: string;
  /** Exit status of each command. Rejects with DEADLINE, CANCELLED, or RDMA_FAILED when a host broke. */
  readonly statuses: Promise<readonly number[]>;
  /** Takes host's end of the wire down, as a pulled cable does, or up. @throws INVALID_ARGUMENT with one host */
  readonly setLink: (host: number, up: boolean) => Promise<void>;
  /** Ends what still runs, and waits for it. */
  readonly close: () => Promise<void>;
}

/** Host numbers are 1 and 2. */
export const addressOf = (host: number): string => `10.77.0.${host}`;
export const deviceName = 'rxe0';
/** RoCE's largest path MTU, 4096, and its headers fit in. */
export const wireMtuBytes = 4500;
/** A command that cannot be started, as env(1) and timeout(1) have it. */
export const notStartedStatus = 125;

/** What commands are told, beside the caller's environment. */
export function rxeEnvironment(host: number, hosts: number, device: string, out: string): NodeJS.ProcessEnv {
  const numbers = Array.from({ length: hosts }, (_, i) => i + 1);
  return {
    DUALPATH_OUT: out,
    DUALPATH_RXE_HOST: String(host),
    DUALPATH_RXE_HOSTS: String(hosts),
    DUALPATH_RXE_ADDRESS: addressOf(host),
    DUALPATH_RXE_ADDRESSES: numbers.map(addressOf).join(','),
    DUALPATH_RXE_DEVICE: device,
  };
}
