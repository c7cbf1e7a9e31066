/** A host's reality beside a description: what differs, and what could not be read. */
import { networkOf, type HostView } from '../host-view/index.js';
import { readSysfs, type LaneWeight, type SysfsDevice } from '../rdma/index.js';
import { qosClassNames, type QosDescription } from './description.js';
import { ethernetSettings, ecnFiles, type EthernetSettings } from './ethernet.js';
import { arbitrationOf, lanesOf, sharesOf, slToVlOf, type OpenSmQos } from './infiniband.js';
import { readDcb } from './dcb.js';
import { quantaOf, readTc } from './tc.js';

export interface QosDifference {
  /** Such as "mlx5_0 port 1" or "eth0". */
  readonly place: string;
  readonly what: string;
  readonly wanted: string;
  readonly found: string;
  readonly remedy: string;
}

export interface QosUnknown {
  readonly place: string;
  readonly what: string;
  readonly why: string;
}

export interface QosCheck {
  /** Ports and files that were compared. */
  readonly looked: readonly string[];
  readonly differences: readonly QosDifference[];
  readonly unknown: readonly QosUnknown[];
}

interface Findings {
  readonly looked: string[];
  readonly differences: QosDifference[];
  readonly unknown: QosUnknown[];
}

/** Every RDMA port of the host, or of one device. */
export function checkQos(view: HostView, description: QosDescription, device?: string): QosCheck {
  const findings: Findings = { looked: [], differences: [], unknown: [] };
  const devices = readSysfs(`${view.root}/sys/class/infiniband`) ?? [];
  for (const one of devices.filter(({ name }) => device === undefined || name === device)) {
    checkDevice(view, description, one, findings);
  }
  return findings;
}

function checkDevice(
  view: HostView,
  description: QosDescription,
  device: SysfsDevice,
  findings: Findings,
): void {
  for (const { port, linkLayer } of device.ports) {
    if (linkLayer === 'infiniband') checkPort(view, description, device.name, port, findings);
  }
  if (device.ports.every(({ linkLayer }) => linkLayer === 'infiniband')) return;
  const { netdevs, isSoftware } = networkOf(view, device.name);
  for (const netdev of netdevs) {
    if (isSoftware) checkTc(view, description, netdev, findings);
    else checkDcb(view, ethernetSettings(description), netdev, findings);
  }
}

const tableText = (table: readonly LaneWeight[]): string =>
  table
    .filter(({ weight }) => weight > 0)
    .map(({ lane, weight }) => `${lane}:${weight}`)
    .sort()
    .join(',') || 'empty';

function checkPort(
  view: HostView,
  description: QosDescription,
  device: string,
  port: number,
  findings: Findings,
): void {
  const place = `${device} port ${port}`;
  const { tables, problem } = view.probes.arbitration(device, port);
  if (tables === null) {
    findings.unknown.push({ place, what: 'VL arbitration and SL-to-VL map', why: problem });
    return;
  }
  findings.looked.push(place);
  const remedy =
    "set the options of 'dualpath qos plan' in opensm.conf of the active subnet manager and restart it";
  const compare = (what: string, wanted: string, found: string): void => {
    if (wanted !== found) findings.differences.push({ place, what, wanted, found, remedy });
  };
  compareTables(description, tables, compare);
  const lanes = lanesOf(description);
  if (tables.lanes < lanes) compare('virtual lanes in operation', String(lanes), String(tables.lanes));
  const wantedMap = slToVlOf(description);
  for (const name of qosClassNames) {
    const { serviceLevel } = description.classes[name];
    const [wanted, found] = [wantedMap[serviceLevel], tables.slToVl[serviceLevel]];
    compare(`virtual lane of class ${name} (SL ${serviceLevel})`, String(wanted), String(found));
  }
}

function compareTables(
  description: QosDescription,
  found: { high: readonly LaneWeight[]; low: readonly LaneWeight[]; highLimit: number },
  compare: (what: string, wanted: string, found: string) => void,
): void {
  const wanted = arbitrationOf(description);
  compare('high-priority table', tableText(wanted.high), tableText(found.high));
  compare('low-priority table', tableText(wanted.low), tableText(found.low));
  compare('high-priority limit', String(wanted.highLimit), String(found.highLimit));
  const floor = (tables: typeof found): string => {
    const shares = sharesOf(tables, description);
    return qosClassNames.map((name) => `${name} ${(shares[name] * 100).toFixed(2)} %`).join(', ');
  };
  compare('shares while every class is busy', floor(wanted), floor(found));
}

function checkTc(view: HostView, description: QosDescription, netdev: string, findings: Findings): void {
  const { reality, problem } = readTc(view, netdev);
  if (reality === null) {
    findings.unknown.push({ place: netdev, what: 'queues (tc)', why: problem });
    return;
  }
  findings.looked.push(netdev);
  const remedy = `dualpath qos apply --dev ${netdev}`;
  const differ = (what: string, wanted: string, found: string): void => {
    if (wanted !== found) findings.differences.push({ place: netdev, what, wanted, found, remedy });
  };
  const quanta = quantaOf(description);
  if (reality.quanta === null) {
    differ('queues', 'one for each class', `'${reality.root}' alone`);
    return;
  }
  differ('bytes a round', quanta.join(','), reality.quanta.join(','));
  qosClassNames.forEach((name, band) => {
    const { dscp } = description.classes[name];
    if (name !== 'other')
      differ(
        `queue of class ${name} (DSCP ${dscp})`,
        String(band + 1),
        String(reality.bandOfDscp.get(dscp) ?? 'the first'),
      );
  });
}

function checkDcb(view: HostView, wanted: EthernetSettings, netdev: string, findings: Findings): void {
  const reality = readDcb(view, netdev);
  if (reality.problem !== null) {
    findings.unknown.push({
      place: netdev,
      what: 'DSCP map, PFC and ETS weights (dcb)',
      why: reality.problem,
    });
  } else {
    findings.looked.push(netdev);
    const remedy = "run the commands that 'dualpath qos plan' prints for dcb or mlnx_qos";
    const differ = (what: string, want: string, found: string): void => {
      if (want !== found) findings.differences.push({ place: netdev, what, wanted: want, found, remedy });
    };
    for (const [dscp, priority] of wanted.priorityOfDscp) {
      // Without an entry, priority 0.
      differ(`priority of DSCP ${dscp}`, String(priority), String(reality.priorityOfDscp.get(dscp) ?? 0));
    }
    const on = (flags: readonly boolean[]): string =>
      flags.flatMap((flag, priority) => (flag ? [priority] : [])).join(',') || 'none';
    differ('priorities with PFC', on(wanted.lossless), on(reality.lossless));
    differ('ETS weights, percent', wanted.bandwidth.join(','), reality.bandwidth.join(','));
    differ('traffic class of each priority', '0,1,2,3,4,5,6,7', reality.classOfPriority.join(','));
    const strict = reality.selection.flatMap((kind, tc) => (kind === 'ets' ? [] : [`${tc}:${kind}`]));
    differ('traffic classes that are not ETS', 'none', strict.join(',') || 'none');
  }
  checkEcn(view, wanted, netdev, findings);
}

function checkEcn(view: HostView, wanted: EthernetSettings, netdev: string, findings: Findings): void {
  for (const { path, value } of ecnFiles(wanted, netdev)) {
    const { text, problem } = view.read(path);
    // Only mlx5 of MLNX_OFED has these files; others are set by their own tools.
    if (problem === 'missing') continue;
    if (text === null)
      findings.unknown.push({ place: netdev, what: `ECN (${path})`, why: 'may not be read' });
    else if (text !== value) {
      const remedy = `echo ${value} > ${path}`;
      findings.differences.push({ place: netdev, what: `ECN (${path})`, wanted: value, found: text, remedy });
    }
  }
}

/** opensm.conf beside the description, every group of options. */
export function checkOpenSm(found: OpenSmQos, description: QosDescription, file: string): QosCheck {
  const differences: QosDifference[] = [];
  const remedy = `put the lines of 'dualpath qos plan' into ${file} and restart OpenSM`;
  if (!found.enabled) {
    differences.push({ place: file, what: 'qos', wanted: 'TRUE', found: 'FALSE', remedy });
  }
  const wantedMap = slToVlOf(description).join(',');
  for (const [prefix, group] of found.groups) {
    const place = `${file}, qos_${prefix}*`;
    const compare = (what: string, wanted: string, text: string): void => {
      if (wanted !== text) differences.push({ place, what, wanted, found: text, remedy });
    };
    compareTables(description, group.arbitration, compare);
    compare('SL-to-VL map', wantedMap, group.slToVl.join(','));
    if (group.lanes < lanesOf(description))
      compare('max_vls', String(lanesOf(description)), String(group.lanes));
  }
  return { looked: [file], differences, unknown: [] };
}
