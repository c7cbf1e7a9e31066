/** Control messages between engines, and what carries them. */
export { LocalControl } from './local.js';
export type { ControlLink, ControlMessage, StageSegment } from './messages.js';
