/**
 * A command's JSON document as a page: what it says once as a table of names and values, each list of results as a
 * table, its columns drawn by unit.
 */
import type { Figure, Report, ReportTable } from './page.js';

type Scalar = string | number | boolean | null;
type Row = ReadonlyMap<string, Scalar>;

interface Results {
  readonly name: string;
  readonly columns: readonly string[];
  readonly rows: readonly Row[];
}

const maxFigures = 12;
const maxBars = 64;

/**
 * @param document parsed JSON: keys in snake_case, units last
 * @param introduction paragraphs, plain text
 */
export function documentReport(title: string, introduction: readonly string[], document: object): Report {
  const results = [...resultsIn(document, '')];
  const facts = [...flat(document)].map(([name, value]) => [name, text(value)]);
  return {
    title,
    introduction,
    figures: results.flatMap(figuresOf).slice(0, maxFigures),
    tables: [
      ...results.map((table) => ({ title: table.name, table: tableOf(table) })),
      ...(facts.length === 0 ? [] : [{ title: 'Run', table: { head: ['name', 'value'], rows: facts } }]),
    ],
  };
}

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);
const isResultList = (value: unknown): value is Record<string, unknown>[] =>
  Array.isArray(value) && value.length > 0 && value.every(isObject);

/** Lists of objects, and objects of one shape side by side, wherever they are. */
function* resultsIn(value: object, path: string): Generator<Results> {
  const under = (key: string): string => (path === '' ? key : `${path}.${key}`);
  const siblings = sameShape(value);
  if (siblings.length > 1) {
    const rows = siblings.map(([name, item]) => new Map<string, Scalar>([['name', name], ...flat(item)]));
    yield resultsOf(path === '' ? 'results' : path, rows);
  }
  const named = new Set(siblings.length > 1 ? siblings.map(([name]) => name) : []);
  for (const [key, item] of Object.entries(value)) {
    if (isResultList(item))
      yield resultsOf(
        under(key),
        item.map((row) => new Map(flat(row))),
      );
    else if (isObject(item) && !named.has(key)) yield* resultsIn(item, under(key));
  }
}

function resultsOf(name: string, rows: readonly Row[]): Results {
  return { name, columns: [...new Set(rows.flatMap((row) => [...row.keys()]))], rows };
}

/** The largest group of an object's members that are objects with the same keys. */
function sameShape(value: object): [string, Record<string, unknown>][] {
  const shapes = new Map<string, [string, Record<string, unknown>][]>();
  for (const [name, item] of Object.entries(value)) {
    if (!isObject(item)) continue;
    const shape = Object.keys(item).sort().join(' ');
    shapes.set(shape, [...(shapes.get(shape) ?? []), [name, item]]);
  }
  return [...shapes.values()].sort((a, b) => b.length - a.length)[0] ?? [];
}

/** Names and values, objects within objects by dotted names; lists of objects and siblings are tables, so left out. */
function* flat(value: object, path = ''): Generator<[string, Scalar]> {
  const siblings = path === '' ? [] : sameShape(value);
  for (const [key, item] of Object.entries(value)) {
    const name = path === '' ? key : `${path}.${key}`;
    if (isObject(item)) {
      if (siblings.length <= 1) yield* flat(item, name);
    } else if (Array.isArray(item)) {
      if (!isResultList(item)) yield [name, item.map((entry) => String(entry)).join(', ')];
    } else {
      yield [name, item as Scalar];
    }
  }
}

function text(value: Scalar | undefined): string {
  if (typeof value !== 'number') return value === undefined || value === null ? '' : String(value);
  if (Number.isInteger(value)) return value.toLocaleString('en');
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString('en') : value.toPrecision(4);
}

function tableOf({ columns, rows }: Results): ReportTable {
  return { head: columns, rows: rows.map((row) => columns.map((column) => text(row.get(column)))) };
}

/** The first columns that tell the rows apart: sizes, names, cases. */
function labelColumns({ columns, rows }: Results): readonly string[] {
  for (let count = 1; count < columns.length; count++) {
    const labels = rows.map((row) => labelOf(row, columns.slice(0, count)));
    if (new Set(labels).size === rows.length) return columns.slice(0, count);
  }
  return columns.slice(0, 1);
}

const labelOf = (row: Row, columns: readonly string[]): string =>
  columns.map((column) => text(row.get(column))).join(' · ');

/** `p50_us` and `p99_us` are drawn together, `latency_us.p50` with its siblings. */
function unitOf(column: string): string {
  const dot = column.lastIndexOf('.');
  if (dot > 0) return column.slice(0, dot);
  return (
    /_(bytes_per_s|mb_per_s|gb_per_s|per_s|percent|bytes|ns|us|ms|s)$/.exec(column)?.[1] ??
    (/ratio/.test(column) ? 'ratio' : '')
  );
}

function figuresOf(results: Results): Figure[] {
  const labels = labelColumns(results);
  if (results.rows.length < 2 || results.rows.length > maxBars) return [];
  const units = new Map<string, string[]>();
  for (const column of results.columns) {
    const unit = labels.includes(column) ? '' : unitOf(column);
    if (unit === '' || !results.rows.some((row) => typeof row.get(column) === 'number')) continue;
    units.set(unit, [...(units.get(unit) ?? []), column]);
  }
  return [...units].map(([unit, columns], index) => ({
    id: `${results.name}-${index}`.replaceAll(/[^a-z0-9-]/gi, '-'),
    title: `${results.name}: ${unit}`,
    text: `By ${labels.join(', ')}.`,
    option: {
      tooltip: { trigger: 'axis' },
      legend: { top: 0 },
      xAxis: { type: 'category', data: results.rows.map((row) => labelOf(row, labels)) },
      yAxis: { type: 'value', name: unit },
      series: columns.map((column) => ({
        type: 'bar',
        name: column,
        data: results.rows.map((row) => row.get(column) ?? null),
      })),
    },
  }));
}
