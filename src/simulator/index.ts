/** A cluster in virtual time: what a deployment would do, and the published figures derived again. */
export { EventHeap } from './event-heap.js';
export { dataSetWorkload, frozenDataSets, hashOf, meansOf, traceWorkload } from './workload.js';
