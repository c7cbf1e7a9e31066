import Table from 'cli-table3';

export interface TableText {
  readonly head: readonly string[];
  /** Each row has as many cells as the head. */
  readonly rows: readonly (readonly string[])[];
}

/** A table in box-drawing characters, without colours: the first column to the left, numbers to the right. */
export function renderTable({ head, rows }: TableText): string {
  const table = new Table({
    head: [...head],
    colAligns: head.map((_, column) => (column === 0 ? 'left' : 'right')),
    style: { head: [], border: [], compact: true },
  });
  for (const row of rows) table.push([...row]);
  return table.toString();
}
