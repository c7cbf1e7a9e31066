/** What `dualpath qos` prints for people. */
import { paperShares, type QosCheck, type QosPlan } from '../qos/index.js';
import { renderTable } from '../telemetry/index.js';

const percent = (share: number): string => `${(share * 100).toFixed(share < 0.01 ? 3 : 2)} %`;

export function planText(plan: QosPlan): string {
  const { infiniband, roce, softRoce, environment } = plan;
  const sections: [title: string, lines: readonly string[]][] = [
    ['InfiniBand: opensm.conf of every subnet manager', infiniband.opensm],
    ['RoCE hosts: mlnx_qos', roce.mlnxQos],
    ['RoCE hosts: iproute2 dcb, in place of mlnx_qos', roce.dcb],
    ['RoCE hosts: ECN of mlx5', roce.ecn],
    ['RoCE switches: SONiC, config_db.json', [JSON.stringify(roce.sonic)]],
    ['Soft-RoCE (dualpath qos apply)', softRoce],
    [
      'Engines: collectives on the inference class',
      Object.entries(environment).map(([name, value]) => `export ${name}=${value}`),
    ],
  ];
  return [sharesText(plan), ...sections.map(([title, lines]) => `# ${title}\n${lines.join('\n')}`)].join(
    '\n\n',
  );
}

function sharesText({ classes }: QosPlan): string {
  const table = renderTable({
    head: [
      'class',
      'share wanted',
      'the paper’s text',
      'InfiniBand, all busy',
      'InfiniBand, beside one',
      'RoCE (ETS), all busy',
    ],
    rows: classes.map((one) => [
      one.name,
      percent(one.share),
      percent(one.paper),
      percent(one.infinibandFloor),
      percent(one.infinibandBesideOne),
      percent(one.roceFloor),
    ]),
  });
  const short = classes.filter(({ share, infinibandFloor }) => infinibandFloor < share * 0.99);
  const text = `The paper says ${percent(paperShares.high)} and ${percent(paperShares.low)}; shares here are worked out from the arbiter's tables.`;
  const names = short.map(({ name }) => name).join(', ');
  const hint =
    short.length === 0
      ? ''
      : `\nOn InfiniBand ${names} get less than they are to have; --exact gives tables that keep the shares.`;
  return `${table}\n“beside one”: only it and inference are busy (inference: kv).\n${text}${hint}`;
}

export function checkText({ looked, differences, unknown }: QosCheck): string {
  const lines = differences.map(
    ({ place, what, wanted, found, remedy }) =>
      `${place}: ${what}: wanted ${wanted}, found ${found}\n  remedy: ${remedy}`,
  );
  const dark = unknown.map(({ place, what, why }) => `${place}: ${what} could not be read: ${why}`);
  const verdict =
    looked.length === 0
      ? 'nothing to compare was found'
      : differences.length === 0
        ? `as described: ${looked.join(', ')}`
        : `${differences.length} differences in ${looked.join(', ')}`;
  return [...lines, ...dark, verdict].join('\n');
}
