/** Numbers and tables for people. */
export { formatBytes, formatBytesPerSecond, formatCount, formatDuration, formatPercent } from './format.js';
export { quantile } from './quantile.js';
export { renderTable, type TableText } from './table.js';
export {
  addressOfServer,
  closeHttpServer,
  httpUrl,
  openHttpServer,
  type HttpAddress,
} from './http-listen.js';
