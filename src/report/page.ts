/** A report that stands alone: one HTML file with its plots in it, and the plots as SVG. */
import type { EChartsCoreOption } from 'echarts';
import { plotLibrary, plotLibrarySource } from './library.js';

export interface Figure {
  /** Names its SVG file. */
  readonly id: string;
  readonly title: string;
  /** For a reader who has not read the paper. */
  readonly text: string;
  readonly option: EChartsCoreOption;
}

export interface ReportTable {
  readonly head: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

export interface Report {
  readonly title: string;
  /** Paragraphs, plain text. */
  readonly introduction: readonly string[];
  readonly figures: readonly Figure[];
  readonly tables: readonly { readonly title: string; readonly table: ReportTable }[];
}

const width = 860;
const height = 440;

/** A figure as it stands in the report, without a browser. */
export function figureSvg({ option }: Figure): string {
  const chart = plotLibrary().init(null, null, { renderer: 'svg', ssr: true, width, height });
  try {
    chart.setOption({ ...option, animation: false });
    return chart.renderToSVGString();
  } finally {
    chart.dispose();
  }
}

export function reportHtml({ title, introduction, figures, tables }: Report): string {
  const plots = figures.map(
    (figure) => `<section><h2>${escapeHtml(figure.title)}</h2><p>${escapeHtml(figure.text)}</p>
<div class="plot" id="${figure.id}"></div><noscript>${figureSvg(figure)}</noscript></section>`,
  );
  const options = Object.fromEntries(figures.map(({ id, option }) => [id, option]));
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${escapeHtml(title)}</title><style>${style}</style></head><body>
<h1>${escapeHtml(title)}</h1>
${introduction.map((text) => `<p>${escapeHtml(text)}</p>`).join('\n')}
${plots.join('\n')}
${tables.map(({ title: heading, table }) => `<section><h2>${escapeHtml(heading)}</h2>${tableHtml(table)}</section>`).join('\n')}
<script>${plotLibrarySource()}</script>
<script>const options = ${JSON.stringify(options).replaceAll('<', '\\u003c')};
for (const [id, option] of Object.entries(options)) {
  const chart = echarts.init(document.getElementById(id));
  chart.setOption(option);
  addEventListener('resize', () => chart.resize());
}</script>
</body></html>
`;
}

const style = `body{font:16px/1.5 system-ui,sans-serif;max-width:${width + 80}px;margin:2rem auto;padding:0 1rem;color:#222}
.plot{width:100%;height:${height}px}table{border-collapse:collapse;font-size:14px}
td,th{padding:.25rem .6rem;border-bottom:1px solid #ddd;text-align:right}td:first-child,th:first-child{text-align:left}
h2{margin-top:2.2rem}`;

function tableHtml({ head, rows }: ReportTable): string {
  const cells = (tag: string, values: readonly string[]): string =>
    `<tr>${values.map((value) => `<${tag}>${escapeHtml(value)}</${tag}>`).join('')}</tr>`;
  return `<table><thead>${cells('th', head)}</thead><tbody>${rows.map((values) => cells('td', values)).join('\n')}</tbody></table>`;
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);
}
