/** The request scheduler as a gRPC service. */
export { AloneMembership, nextEpoch, type Leadership, type Membership } from './membership.js';
export { SchedulerServer, type ServeOptions } from './server.js';
