/** A description worked out for every layer, and what each class then has. */
import type { Arbitration } from '../rdma/index.js';
import { qosClassNames, type QosClassName, type QosDescription } from './description.js';
import { collectiveEnvironment } from './environment.js';
import {
  dcbCommands,
  ecnFiles,
  ethernetSettings,
  mlnxQosCommands,
  sonicTables,
  type EthernetSettings,
} from './ethernet.js';
import { arbitrationOf, openSmOptions, sharesOf, slToVlOf } from './infiniband.js';
import { tcCommands, type TcOptions } from './tc.js';

/** What the paper's text says that its tables give (DualPath, traffic isolation): about 99 % and the rest. */
export const paperShares = { high: 0.99, low: 0.01 } as const;

export interface ClassPlan {
  readonly name: QosClassName;
  /** Of the description. */
  readonly share: number;
  readonly paper: number;
  /** On InfiniBand, from the arbiter's tables: every class is busy; or this one and `inference` (inference: kv). */
  readonly infinibandFloor: number;
  readonly infinibandBesideOne: number;
  /** ETS weights of RoCE. */
  readonly roceFloor: number;
}

export interface QosPlan {
  readonly classes: readonly ClassPlan[];
  readonly infiniband: {
    readonly arbitration: Arbitration;
    readonly slToVl: readonly number[];
    readonly opensm: readonly string[];
  };
  readonly roce: {
    readonly settings: EthernetSettings;
    readonly mlnxQos: readonly string[];
    readonly dcb: readonly string[];
    readonly ecn: readonly string[];
    readonly sonic: object;
  };
  readonly softRoce: readonly string[];
  readonly environment: Readonly<Record<string, string>>;
}

export interface PlanOptions extends TcOptions {
  /** Network devices of hosts. */
  readonly netdev?: string;
  /** Ports of switches. */
  readonly switchPorts?: readonly string[];
}

/** @throws INVALID_ARGUMENT */
export function planQos(description: QosDescription, options: PlanOptions = {}): QosPlan {
  const { netdev = 'eth0', switchPorts = ['Ethernet0'] } = options;
  const arbitration = arbitrationOf(description);
  const settings = ethernetSettings(description);
  const lines = (commands: readonly string[][]): string[] => commands.map((words) => words.join(' '));
  return {
    classes: classPlans(description, arbitration, settings),
    infiniband: {
      arbitration,
      slToVl: slToVlOf(description),
      opensm: openSmOptions(description),
    },
    roce: {
      settings,
      mlnxQos: lines(mlnxQosCommands(settings, netdev)),
      dcb: lines(dcbCommands(settings, netdev)),
      ecn: ecnFiles(settings, netdev).map(({ path, value }) => `echo ${value} > ${path}`),
      sonic: sonicTables(settings, switchPorts),
    },
    softRoce: tcCommands(description, netdev, options).map((words) => `tc ${words.join(' ')}`),
    environment: collectiveEnvironment(description),
  };
}

function classPlans(
  description: QosDescription,
  arbitration: Arbitration,
  { bandwidth }: EthernetSettings,
): ClassPlan[] {
  const { classes } = description;
  const floors = sharesOf(arbitration, description);
  const high = qosClassNames.filter((name) => classes[name].priority === 'high').length;
  return qosClassNames.map((name) => {
    const { share, trafficClass, priority } = classes[name];
    const beside = name === 'inference' ? 'kv' : 'inference';
    const together = qosClassNames.filter((other) => classes[other].trafficClass === trafficClass).length;
    return {
      name,
      share,
      paper: priority === 'high' ? paperShares.high / high : paperShares.low / (qosClassNames.length - high),
      infinibandFloor: floors[name],
      infinibandBesideOne: sharesOf(arbitration, description, [name, beside])[name],
      roceFloor: bandwidth[trafficClass]! / 100 / together,
    };
  });
}
