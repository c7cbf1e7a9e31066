/** Loopback between processes of one host, for engines without a network: emulation, named in every report. */
export { MemoryExchange } from './exchange.js';
export { sharedMemoryTransport, type SharedMemorySettings } from './transport.js';
