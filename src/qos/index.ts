/** Quality of service: one description of classes, the configuration of every layer from it, and back. */
export { checkOpenSm, checkQos, type QosCheck, type QosDifference, type QosUnknown } from './check.js';
export {
  defaultQos,
  parseQos,
  qosClassNames,
  qosDocument,
  qosSchema,
  trafficClassesOf,
  type QosClass,
  type QosClassName,
  type QosDescription,
} from './description.js';
export { collectiveEnvironment } from './environment.js';
export {
  dcbCommands,
  ecnFiles,
  ethernetSettings,
  mlnxQosCommands,
  percentages,
  sonicTables,
  type EthernetSettings,
} from './ethernet.js';
export {
  arbitrationOf,
  lanesOf,
  openSmGroups,
  openSmOptions,
  parseOpenSm,
  sharesOf,
  slToVlOf,
  type OpenSmGroup,
  type OpenSmQos,
  type SharesByClass,
} from './infiniband.js';
export { paperShares, planQos, type ClassPlan, type PlanOptions, type QosPlan } from './plan.js';
export { applyQueues, Queueing, queueingKinds, removeQueues, type QueueingKind } from './queueing.js';
export { quantaOf, readTc, tcCommands, type TcOptions, type TcReality } from './tc.js';
