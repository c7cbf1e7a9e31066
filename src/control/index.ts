/** Control messages between engines, and what carries them within a process and between hosts. */
export { addressText, parseAddress, type Address, type TlsFiles } from './address.js';
export { checkReach, checkToken } from './auth.js';
export { EngineControl } from './engine-control.js';
export { LocalControl } from './local.js';
export { requestKey, type ControlLink, type ControlMessage, type StageSegment } from './messages.js';
export { ControlNode, type ControlNodeOptions, type NodeEvents } from './node.js';
export { Rpc } from './rpc.js';
export { controlTiming, type ControlTiming } from './timing.js';
