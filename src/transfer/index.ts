/** Programs on counters, and engines that meet through a transport. */
export type {
  BlocksDescriptor,
  Descriptor,
  LayersDescriptor,
  NopDescriptor,
  Signal,
  Wait,
} from './descriptor.js';
export { TransferEngine, type Program, type ProgramResult, type TransferEngineOptions } from './engine.js';
export { ProgramError } from './program-error.js';
export { RangeAllocator } from './range-allocator.js';
export { defaultRuntime, Runtime, type RecordTaker, type RuntimeOptions } from './runtime.js';
export {
  SharedDoor,
  type OfferedMemory,
  type SharedDoorFacts,
  type SharedDoorOptions,
} from './shared-door.js';
