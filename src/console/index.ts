/** A page that shows a scheduler at work. */
export type { RequestHistory, RequestPath, TimelineEntry, WatchedEvent } from './request-log.js';
export { WebConsole } from './server.js';
export type { ConsoleSnapshot, ConsoleSource } from './snapshot.js';
