/** A description as Linux's tc has it, for devices without queues of their own: soft-RoCE. */
import type { HostView } from '../host-view/index.js';
import { qosClassNames, type QosClassName, type QosDescription } from './description.js';

/** Handles by which a set-up of ours is known again. */
const rootHandle = 'da1:';
const classesHandle = 'da2:';

/** Deep enough for all that soft-RoCE has in flight: what is dropped would be sent again. */
const bucket = ['burst', '16k', 'limit', '8m'];
/** What the class with the smallest share may send in a round: a packet of soft-RoCE with all its headers. */
const leastQuantumBytes = 4608;

export interface TcOptions {
  /** Makes the link this slow, so that its queue is here; without it, queues form where the driver stops taking packets. */
  readonly rateMbit?: number;
}

export function shaper(netdev: string, rateMbit: number): string[] {
  const root = ['qdisc', 'add', 'dev', netdev, 'root', 'handle', rootHandle];
  return [...root, 'tbf', 'rate', `${rateMbit}mbit`, ...bucket];
}

/** Bytes a round, in the order of qosClassNames: weights of a deficit round robin, so shares are kept at any load. */
export function quantaOf({ classes }: QosDescription): number[] {
  const shares = qosClassNames.map((name) => classes[name].share);
  const least = Math.min(...shares);
  return shares.map((share) => Math.round((share / least) * leastQuantumBytes));
}

/** Arguments of tc that make a queue for each class behind `netdev`. */
export function tcCommands(
  description: QosDescription,
  netdev: string,
  { rateMbit }: TcOptions = {},
): string[][] {
  const parent = rateMbit === undefined ? ['root'] : ['parent', `${rootHandle}1`];
  const handle = rateMbit === undefined ? rootHandle : classesHandle;
  const quanta = quantaOf(description).map(String);
  const ets = ['ets', 'bands', String(quanta.length), 'quanta', ...quanta];
  // Whatever no filter names is `other`, the first band.
  const priomap = ['priomap', ...new Array<string>(16).fill('0')];
  return [
    ...(rateMbit === undefined ? [] : [shaper(netdev, rateMbit)]),
    ['qdisc', 'add', 'dev', netdev, ...parent, 'handle', handle, ...ets, ...priomap],
    ...qosClassNames.flatMap((name, band) => (name === 'other' ? [] : filters(name, band))),
  ];

  // Soft-RoCE sets the TOS byte and not the packet's priority, so filters look at it.
  function filters(name: QosClassName, band: number): string[][] {
    const value = String(description.classes[name].dscp << 2);
    const filter = (protocol: string, prio: string, match: readonly string[]): string[] => [
      ...['filter', 'add', 'dev', netdev, 'parent', handle, 'protocol', protocol, 'prio', prio, 'u32'],
      ...['match', ...match, value, '0xfc', 'flowid', `${handle}${band + 1}`],
    ];
    return [filter('ip', '1', ['ip', 'tos']), filter('ipv6', '2', ['ip6', 'priority'])];
  }
}

export const removalCommand = (netdev: string): string[] => ['qdisc', 'delete', 'dev', netdev, 'root'];

interface Qdisc {
  readonly kind: string;
  readonly handle: string;
  readonly root?: boolean;
  readonly options?: { readonly quanta?: readonly number[]; readonly strict?: number };
}

/** What tc says of a network device. */
export interface TcReality {
  /** The root queueing discipline, such as 'fq_codel'. */
  readonly root: string;
  /** Whether it was made by these commands. */
  readonly isOurs: boolean;
  /** Bytes a round by class; null: no queue of its own for every class. */
  readonly quanta: readonly number[] | null;
  /** The queue (1 is the first) that packets with a DSCP go to, of those with a filter. */
  readonly bandOfDscp: ReadonlyMap<number, number>;
}

/** null and why, where tc cannot be asked. */
export function readTc(
  view: HostView,
  netdev: string,
): { reality: TcReality; problem: null } | { reality: null; problem: string } {
  const { output, problem } = view.command('tc', '-j', 'qdisc', 'show', 'dev', netdev);
  if (output === null) return { reality: null, problem };
  const disciplines = JSON.parse(output.trim() || '[]') as Qdisc[];
  const root = disciplines.find((one) => one.root === true);
  const ets = disciplines.find(
    ({ kind, handle }) => kind === 'ets' && [rootHandle, classesHandle].includes(handle),
  );
  const filters =
    ets === undefined ? undefined : view.command('tc', 'filter', 'show', 'dev', netdev, 'parent', ets.handle);
  return {
    reality: {
      root: root?.kind ?? 'none',
      isOurs: root?.handle === rootHandle,
      quanta: ets?.options?.quanta ?? null,
      bandOfDscp: bandsOf(filters?.output ?? ''),
    },
    problem: null,
  };
}

/** u32's filters on IPv4's TOS byte, as tc prints them: "... flowid da2:2 ..." and "match 00680000/00fc0000 at 0". */
function bandsOf(text: string): Map<number, number> {
  const bands = new Map<number, number>();
  let band: number | undefined;
  for (const line of text.split('\n')) {
    const flow = /flowid [0-9a-f]+:([0-9a-f]+)/.exec(line)?.[1];
    if (flow !== undefined) band = parseInt(flow, 16);
    const value = /match ([0-9a-f]{8})\/00fc0000 at 0/.exec(line)?.[1];
    if (value !== undefined && band !== undefined) bands.set(parseInt(value, 16) >> 18, band);
  }
  return bands;
}
