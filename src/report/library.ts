/**
 * The plot library, Apache ECharts. The package carries its one built file, not the 60 MB that it is
 * developed from; `npm run setup` puts it into vendor/ (.cjs: it is no module, whatever package.json says).
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import type * as ECharts from 'echarts';

const path = fileURLToPath(new URL('../../vendor/echarts.min.cjs', import.meta.url));

/** For plots made here. */
export function plotLibrary(): typeof ECharts {
  return createRequire(import.meta.url)(path) as typeof ECharts;
}

/** For a page that stands alone, safe within a `<script>`. */
export function plotLibrarySource(): string {
  return readFileSync(path, 'utf8').replaceAll('</script', '<\\/script');
}
