/** What iproute2's dcb says of a network device: dcb-app(8), dcb-pfc(8), dcb-ets(8). */
import type { HostView } from '../host-view/index.js';

export type DcbReality =
  | {
      readonly priorityOfDscp: ReadonlyMap<number, number>;
      readonly lossless: readonly boolean[];
      readonly bandwidth: readonly number[];
      readonly selection: readonly string[];
      readonly classOfPriority: readonly number[];
      readonly problem: null;
    }
  | { readonly problem: string };

interface App {
  readonly dscp_prio?: readonly (readonly [number | string, number])[];
}
interface Pfc {
  readonly prio_pfc?: readonly (boolean | string)[];
}
interface Ets {
  readonly tc_bw?: readonly number[];
  readonly tc_tsa?: readonly string[];
  readonly prio_tc?: readonly number[];
}

export function readDcb(view: HostView, netdev: string): DcbReality {
  const ask = <T>(object: string): T | string => {
    const { output, problem } = view.command('dcb', '-j', '-N', object, 'show', 'dev', netdev);
    if (output === null) return problem;
    try {
      return JSON.parse(output.trim() || '{}') as T;
    } catch {
      return `dcb ${object} answers what is no JSON`;
    }
  };
  const app = ask<App>('app');
  if (typeof app === 'string') return { problem: app };
  const pfc = ask<Pfc>('pfc');
  if (typeof pfc === 'string') return { problem: pfc };
  const ets = ask<Ets>('ets');
  if (typeof ets === 'string') return { problem: ets };
  return {
    priorityOfDscp: new Map((app.dscp_prio ?? []).map(([dscp, priority]) => [Number(dscp), priority])),
    lossless: (pfc.prio_pfc ?? []).map((flag) => flag === true || flag === 'on'),
    bandwidth: ets.tc_bw ?? [],
    selection: ets.tc_tsa ?? [],
    classOfPriority: ets.prio_tc ?? [],
    problem: null,
  };
}
