/** Which of several schedulers leads, by etcd (docs/control-plane.md). */
export { EtcdMembership, type EtcdMembershipOptions } from './membership.js';
export { parseEtcdUrl, type EtcdLocation } from './url.js';
