import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { figureSvg, reportHtml, type Report } from './page.js';

/**
 * Writes a report as a page, its plots as files of a folder, or both, whichever is named.
 * @throws what `node:fs` throws where a file cannot be written
 */
export function writeReport(
  report: Report,
  { report: page, svg }: { readonly report?: string | undefined; readonly svg?: string | undefined },
): void {
  if (page !== undefined) {
    mkdirSync(dirname(page), { recursive: true });
    writeFileSync(page, reportHtml(report));
  }
  if (svg === undefined) return;
  mkdirSync(svg, { recursive: true });
  for (const figure of report.figures) writeFileSync(join(svg, `${figure.id}.svg`), figureSvg(figure));
}
