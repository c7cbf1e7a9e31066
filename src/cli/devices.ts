import { Command } from 'commander';
import type { RdmaDevice, RdmaDevices, RdmaPort } from '../rdma/index.js';
import { renderTable } from '../telemetry/index.js';
import { addExamples, addOutputOptions, contextOf } from './support.js';

/** `dualpath devices`: by FFI and sysfs, so that it works where the add-on has not been built. */
export function devicesCommand(): Command {
  const devices = new Command('devices').description('list RDMA devices, ports and GIDs, best GID first');
  addOutputOptions(devices);
  devices.addHelpText('after', '\nExits with 1, and says why, where no device can carry traffic.');
  addExamples(devices, 'dualpath devices', 'dualpath devices --json');
  return devices.action(async (_flags: object, command: Command) => {
    const context = contextOf(command);
    const { findRdmaDevices } = await import('../rdma/index.js');
    const found = findRdmaDevices();
    if (found.problem !== null) context.fail();
    context.result(found, () => devicesText(found));
  });
}

export function devicesText({ devices, library, problem }: RdmaDevices): string {
  const tables = devices.map((device) => `${deviceLine(device)}\n${device.ports.map(portText).join('\n')}`);
  const source = library === null ? 'sysfs alone' : `${library} and sysfs`;
  const verdict = problem === null ? '' : `no RDMA: ${problem}\n`;
  return `${[...tables, ''].join('\n')}${verdict}found by ${source}`;
}

function deviceLine({ name, guid, pciAddress, problem }: RdmaDevice): string {
  const facts = [`GUID ${guid ?? 'unknown'}`, pciAddress === null ? 'no PCI address' : `PCI ${pciAddress}`];
  return `${name}: ${facts.join(', ')}${problem === null ? '' : `; not usable: ${problem}`}`;
}

function portText({ port, state, linkLayer, mtuBytes, lid, gids }: RdmaPort): string {
  const mtu = mtuBytes === null ? 'MTU unknown' : `MTU ${mtuBytes}`;
  const title = `port ${port}: ${state}, ${linkLayer}, ${mtu}${linkLayer === 'infiniband' ? `, LID ${lid}` : ''}`;
  return renderTable({
    head: [title, 'GID', 'net device', 'reason'],
    rows: gids.map((gid) => [
      `${gid.rank === null ? 'not used' : `choice ${gid.rank}`}, index ${gid.index}`,
      gid.gid,
      gid.netdev ?? '',
      gid.reason,
    ]),
  });
}
