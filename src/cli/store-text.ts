/** What `dualpath store` prints for people. */
import type { DeleteReport, GcReport, StoreReport, VerifyReport } from '../storage/index.js';
import { formatBytes, formatCount, formatDuration, renderTable } from '../telemetry/index.js';

const quantity = (blocks: number, bytes: number, what = 'blocks'): string =>
  `${formatCount(blocks)} ${what}, ${formatBytes(bytes)}`;

export function storeText(report: StoreReport): string {
  const { blocks, bytes, quarantined, temps, processes } = report;
  const living = processes.filter(({ dead }) => !dead);
  const dead = processes.length - living.length;
  const rows: [string, string][] = [
    ['layout', shortened(report.identity)],
    [
      'a block',
      report.layers === 0
        ? 'not known: open the store once with its model'
        : `${formatBytes(report.blockFileBytes)}, ${formatCount(report.layers)} layers`,
    ],
    ['stored', quantity(blocks, bytes)],
    ['capacity', report.capacityBytes === null ? 'none in force' : formatBytes(report.capacityBytes)],
    ['oldest', blocks === 0 ? '-' : `${formatDuration(report.oldestS)} since its last use`],
    ['open in', `${formatCount(living.length)} processes${dead > 0 ? `; ${formatCount(dead)} died` : ''}`],
    ['being written', quantity(temps.files, temps.bytes, 'files')],
    ['quarantined', quantity(quarantined.files, quarantined.bytes)],
    ['deleted, to be removed', `${formatCount(report.trashNamespaces)} namespaces`],
    ['names not of a block', formatCount(report.foreignNames)],
  ];
  const spaces = report.namespaces.map(({ name, ...space }) => [
    name === '' ? '(default)' : name,
    formatCount(space.blocks),
    formatBytes(space.bytes),
  ]);
  const ages = report.ages.map(({ underS, ...age }) => [
    underS === null ? 'older' : `up to ${formatDuration(underS)}`,
    formatCount(age.blocks),
    formatBytes(age.bytes),
  ]);
  return [
    renderTable({ head: [report.path, ''], rows }),
    renderTable({ head: ['namespace', 'blocks', 'bytes'], rows: spaces }),
    renderTable({ head: ['last used', 'blocks', 'bytes'], rows: ages }),
  ].join('\n');
}

function shortened(text: string): string {
  return text.length <= 60 ? text : `${text.slice(0, 57)}...`;
}

export function verifyText(path: string, report: VerifyReport): string {
  const lines = [
    `${path}: ${quantity(report.blocks, report.bytes)} read; ${formatCount(report.goodBlocks)} good, ` +
      `${formatCount(report.badBlocks)} bad, ${formatCount(report.vanishedBlocks)} vanished meanwhile`,
  ];
  for (const { namespace, key, fault, layer } of report.bad) {
    const place = namespace === '' ? key : `${namespace}/${key}`;
    lines.push(`  ${place}: ${fault}${fault === 'layer corrupt' ? `, layer ${layer}` : ''}`);
  }
  const unlisted = report.badBlocks - report.bad.length;
  if (unlisted > 0) lines.push(`  and ${formatCount(unlisted)} more`);
  if (report.removedBlocks > 0) lines.push(`${formatCount(report.removedBlocks)} taken out of the store`);
  if (report.failedRemovals > 0)
    lines.push(`${formatCount(report.failedRemovals)} could not be taken out of the store`);
  if (report.resume !== null) lines.push(`not all were read; go on with --resume ${report.resume}`);
  return lines.join('\n');
}

export function gcText(path: string, report: GcReport, dryRun: boolean): string {
  const { temps, tables, quarantined, trash, eviction } = report;
  const removed = dryRun ? 'would be removed' : 'removed';
  const rows = [
    ['unfinished files of dead processes', quantity(temps.files, temps.bytes, 'files')],
    ['pins of dead processes', quantity(tables.files, tables.bytes, 'files')],
    ['quarantined blocks', quantity(quarantined.files, quarantined.bytes)],
    ['files of deleted namespaces', quantity(trash.files, trash.bytes, 'files')],
    ...(eviction === undefined
      ? []
      : [['oldest blocks', quantity(eviction.evictedBlocks, eviction.evictedBytes)]]),
  ];
  const lines = [renderTable({ head: [path, removed], rows })];
  if (report.tempsLeft.files > 0) {
    lines.push(
      `${quantity(report.tempsLeft.files, report.tempsLeft.bytes, 'files')} being written, left alone`,
    );
  }
  if (eviction !== undefined) {
    const left = eviction.bytes - eviction.evictedBytes;
    lines.push(`blocks left: ${formatBytes(left)} of ${quantity(eviction.blocks, eviction.bytes)} before`);
    if (eviction.pinnedBlocks > 0) lines.push(`${formatCount(eviction.pinnedBlocks)} in use, kept`);
  }
  const failed = report.failed + (eviction?.failedBlocks ?? 0);
  if (failed > 0) {
    const errno = report.failed > 0 ? report.lastErrno : eviction?.lastErrno;
    lines.push(`${formatCount(failed)} files could not be removed, the last with errno ${errno}`);
  }
  return lines.join('\n');
}

export function deletionText(path: string, namespace: string, report: DeleteReport): string {
  const text = `${path}: namespace '${namespace}' deleted, ${quantity(report.blocks, report.bytes)}`;
  if (report.failed === 0) return text;
  return `${text}\n${formatCount(report.failed)} files could not be removed (errno ${report.lastErrno}); gc tries again`;
}
