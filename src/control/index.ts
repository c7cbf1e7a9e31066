/** Control messages between engines, and what carries them. */
export { LocalControl } from './local.js';
export { requestKey, type ControlLink, type ControlMessage, type StageSegment } from './messages.js';
