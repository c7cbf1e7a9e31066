/** What every command file needs. */
export {
  addExamples,
  addInputEndsOption,
  addOutputOptions,
  addReportOption,
  contextOf,
  untilAborted,
  untilStopped,
  type CliContext,
  type CliIo,
  type Progress,
} from './context.js';
export {
  listOf,
  nonNegativeInteger,
  nonNegativeNumber,
  positiveInteger,
  positiveNumber,
  rateBytesPerSecond,
  sizeBytes,
} from './options.js';
export { exitCodes } from './output.js';
export { addWorkloadOptions, loadWorkloadWithProgress, type WorkloadFlags } from './workload-options.js';
