/** PCI as sysfs shows it: places in the tree, and configuration space where it may be read. */
import type { HostView } from '../host-view/index.js';

export const pciFolder = '/sys/bus/pci/devices';
const addressPattern = /^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/i;

/** Bridges and ports above a device, the root port first. */
export function bridgesOf(view: HostView, address: string): string[] {
  const path = view.resolve(`${pciFolder}/${address}`) ?? '';
  return path
    .split('/')
    .filter((part) => addressPattern.test(part))
    .slice(0, -1);
}

/** GPUs of NVIDIA: vendor 0x10de, class display or 3D controller. */
export function gpusOf(view: HostView): string[] {
  return view.list(pciFolder).filter((address) => {
    const of = (file: string): string => view.read(`${pciFolder}/${address}/${file}`).text ?? '';
    return of('vendor') === '0x10de' && /^0x03(00|02)/.test(of('class'));
  });
}

const capabilityPointer = 0x34;
const pciExpress = 0x10;
const accessControl = 0x000d;
const maxCapabilities = 64;
const unprivilegedBytes = 64;

export interface PciControls {
  /** PCI Express Device Control; null: no such capability. */
  readonly relaxedOrdering: boolean | null;
  readonly maxReadBytes: number | null;
  /** ACS redirects of peer-to-peer requests or completions to the root; null: no such capability. */
  readonly redirects: boolean | null;
}

/** null: only the first 64 bytes may be read (root alone sees the rest), or nothing. */
export function pciControls(view: HostView, address: string): PciControls | null {
  const config = view.bytes(`${pciFolder}/${address}/config`);
  if (config === null || config.length <= unprivilegedBytes) return null;
  const express = findCapability(config);
  const control = express === null ? null : config.readUInt16LE(express + 8);
  const access = findExtended(config);
  return {
    relaxedOrdering: control === null ? null : (control & 0x10) !== 0,
    maxReadBytes: control === null ? null : 128 << ((control >> 12) & 7),
    // P2P Request Redirect, P2P Completion Redirect.
    redirects: access === null ? null : (config.readUInt16LE(access + 6) & 0x0c) !== 0,
  };
}

function findCapability(config: Buffer): number | null {
  let at = config[capabilityPointer]! & 0xfc;
  for (let i = 0; i < maxCapabilities && at >= 0x40 && at + 12 <= config.length; i++) {
    if (config[at] === pciExpress) return at;
    at = config[at + 1]! & 0xfc;
  }
  return null;
}

function findExtended(config: Buffer): number | null {
  let at = 0x100;
  for (let i = 0; i < maxCapabilities && at >= 0x100 && at + 8 <= config.length; i++) {
    const header = config.readUInt32LE(at);
    if ((header & 0xffff) === accessControl) return at;
    at = header >>> 20;
  }
  return null;
}
