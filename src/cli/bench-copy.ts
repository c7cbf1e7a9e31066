import { Command } from 'commander';
import type { CopyBenchResult, CopyWayResult } from '../bench/index.js';
import { formatBytes, renderTable } from '../telemetry/index.js';
import { addExamples, addOutputOptions, contextOf, positiveInteger } from './support.js';

interface CopyFlags {
  readonly device?: string;
  readonly rounds: number;
  readonly emulated?: boolean;
}

export function copyCommand(): Command {
  const copy = new Command('copy')
    .description("copies of Layer Blocks: through the NIC against memcpy and CUDA's driver")
    .option('--device <name>', 'RDMA device that copies (default: the first that is ready)')
    .option('--emulated', 'the strict stub provider instead of a device, as where there is none')
    .option('--rounds <count>', 'rounds of each case, an odd number', positiveInteger, 5);
  addOutputOptions(copy);
  addExamples(copy, 'dualpath bench copy', 'dualpath rxe -- dualpath bench copy --json');
  return copy.action(async (flags: CopyFlags, command: Command) => {
    const context = contextOf(command);
    const { benchCopy } = await import('../bench/index.js');
    const nic = flags.emulated === true ? undefined : await findNic(flags.device);
    const result = await benchCopy({
      ...{ signal: context.signal, rounds: flags.rounds },
      ...(nic === undefined ? {} : { nic }),
      onProgress: (step) => context.note(`measuring: ${step}`),
    });
    const ways = result.results.flatMap((row) => Object.values<CopyWayResult>(row.ways));
    const honest = ways.every((way) => way.mismatchedBlocks === 0 && way.carriedShare === 1);
    const counted = result.results.every(
      ({ nic: { postCallsPerChain, completionsPerChain } }) =>
        postCallsPerChain === 1 && completionsPerChain === 1,
    );
    if (!honest || !counted) context.fail();
    context.result(result, () => copyText(result));
  });
}

/** undefined: there is none, and none was asked for. */
async function findNic(name: string | undefined) {
  const { findRdmaDevices, selectDevice } = await import('../rdma/index.js');
  const found = findRdmaDevices();
  if (name === undefined && found.problem !== null) return undefined;
  const device =
    name === undefined
      ? found.devices.find(({ usable, ports }) => usable && ports.some(({ state }) => state === 'active'))!
      : selectDevice(found, name);
  const port = device.ports.find(({ state }) => state === 'active') ?? device.ports[0]!;
  const gid = port.linkLayer === 'infiniband' ? undefined : port.gids[0]?.index;
  return {
    ...{ device: device.name, port: port.port, linkLayer: port.linkLayer },
    ...(gid === undefined ? {} : { gidIndex: gid }),
  };
}

function copyText({ results, provider, device, emulated, cuda }: CopyBenchResult): string {
  const way = (of: CopyWayResult | undefined): string[] =>
    of === undefined
      ? ['', '']
      : [
          `${(of.bytesPerS / 1e6).toFixed(1)} (${(of.minBytesPerS / 1e6).toFixed(1)} to ${(of.maxBytesPerS / 1e6).toFixed(1)})`,
          of.usPerBlock.toFixed(1),
        ];
  const table = renderTable({
    head: [
      ...['model', 'layout', 'block', 'pieces', 'requests'],
      ...['NIC MB/s', 'us a block', 'memcpy MB/s', 'us a block', 'CUDA MB/s', 'us a block'],
    ],
    rows: results.map((row) => [
      ...[row.model, row.layout, formatBytes(row.blockBytes), String(row.piecesPerBlock)],
      row.nic.requestsPerBlock.toFixed(1),
      ...way(row.ways.nic),
      ...way(row.ways.memcpy),
      ...way(row.ways.cuda),
    ]),
  });
  const nic = emulated ? `${provider}: its times say nothing of a NIC` : `${device} (${provider})`;
  return `${table}\nNIC: ${nic}\nCUDA: ${cuda}`;
}
