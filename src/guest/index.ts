/** Guests under QEMU that have the host's files: for crash tests, and for soft-RoCE where the host has none. */
export { chooseAcceleration } from './acceleration.js';
export { makeDisk } from './disk.js';
export { Guest, type GuestEnd, type GuestOptions, type TakeChunk } from './guest.js';
export { guestImages, type GuestImages, type ImageOptions } from './images.js';
export type { Acceleration, GuestDisk, GuestLink, GuestShare } from './machine.js';
export { commandEnvironment, requirePackages } from './packages.js';
export { quoted } from './shell.js';
